"""git as the lab runs it: no configuration, no repository and no tree makes it start anything.

A clone may be a stranger's, and the lab be root: its configuration can name programs for the
watching of files, for hooks, filters and transports.
"""

import subprocess
import tempfile
from pathlib import Path

from wallab.errors import LabError, MachineError

_NO_CONFIGURATION = (
    "env",
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_ATTR_NOSYSTEM=1",
    "LC_ALL=C",
)
_NO_FETCH = ("GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
_NO_PROGRAMS = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.pager=cat"),
    *("-c", "core.sshCommand=false"),
    # It may belong to somebody else than root; only reading happens here.
    *("-c", "safe.directory=*"),
)


def apply(
    text: bytes, *options: str, tree: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run git apply with the diff (-p1) and return what it says; with a tree, apply it there.

    The tree is in no repository, wherever it lies and whatever was put into it.
    """
    apply = ("git", "apply", "-p1", "--whitespace=nowarn", *options, "-")
    return _run([*_NO_CONFIGURATION, "GIT_DIR=/dev/null", *apply], text, tree)


def files(tree: Path) -> list[bytes]:
    """Return what git would commit in a work tree, whose .git is in it, in order."""
    names = _clone(tree, _places(tree), "ls-files", "-z", "-co", "--exclude-standard")
    return sorted(set(names.split(b"\0")) - {b""})


def commit(clone: Path, ref: str) -> str:
    """Return the digest of the commit that the ref names; LabError if there is none."""
    lines = _clone(clone, (), "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    # git repeats its separator.
    return lines.decode().split()[-1]


def state(tree: Path) -> tuple[str, bool]:
    """Return the commit that is checked out in a work tree, and whether files of it were changed.

    Filters that its configuration names do run: it is for a tree whose programs run anyway.
    """
    changed = _clone(tree, _places(tree), "status", "--porcelain", "--untracked-files=no")
    return commit(tree, "HEAD"), bool(changed)


def changed_since(tree: Path, commit: str, *names: str) -> bool:
    """Whether files below these names differ in a work tree from what the commit has.

    LabError where the clone has no such commit. Filters run as in `state`.
    """
    return bool(_clone(tree, _places(tree), "diff", "--name-only", commit, "--", *names))


def add_work_tree(clone: Path, place: Path, commit: str) -> None:
    """Check a commit out at another place, where nothing is; LabError where that fails.

    The clone notes the place, until it is gone. Filters run as in `state`.
    """
    _clone(clone, (), "worktree", "prune")
    _clone(clone, (), "worktree", "add", "--quiet", "--force", "--detach", str(place), commit)


def archive(clone: Path, commit: str, *options: str) -> bytes:
    """Return the commit's tree as a tar archive."""
    return _objects(clone, "archive", *options, commit)


def content(clone: Path, commit: str, name: str) -> bytes:
    """Return a file of the commit's tree; LabError if there is none."""
    return _objects(clone, "cat-file", "blob", f"{commit}:{name}")


def _places(tree: Path) -> tuple[str, ...]:
    """Return the variables that name a work tree, since its configuration could name another."""
    return (f"GIT_DIR={tree / '.git'}", f"GIT_WORK_TREE={tree}")


def _clone(clone: Path, places: tuple[str, ...], *arguments: str) -> bytes:
    """Return what git says in a clone to a command that runs no program beside _NO_PROGRAMS."""
    environment = ("env", *_NO_FETCH, *places)
    return _output([*environment, "git", "-C", str(clone), *_NO_PROGRAMS, *arguments], clone)


def _objects(clone: Path, *arguments: str) -> bytes:
    """Return what git says in a new repository that has the clone's objects, and no more of it.

    A filter, which git archive runs, can have any name, so that none could be switched off.
    """
    ask = ("rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-object-format")
    objects, form = _clone(clone, (), *ask).decode(errors="surrogateescape").splitlines()
    with tempfile.TemporaryDirectory() as home:
        alone = [*_NO_CONFIGURATION, f"GIT_DIR={home}", f"GIT_OBJECT_DIRECTORY={objects}", "git"]
        init = ("init", "--quiet", "--bare", "--template=", f"--object-format={form}", home)
        _output([*_NO_CONFIGURATION, "git", *init], clone)
        return _output([*alone, *arguments], clone)


def _output(command: list[str], clone: Path) -> bytes:
    result = _run(command)
    if result.returncode:
        reason = result.stderr.decode(errors="replace").strip()
        raise LabError(f"source {clone}: git says: {reason}")
    return result.stdout


def _run(
    command: list[str], text: bytes = b"", cwd: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command that begins with env(1), which says by 127 that there is no such program."""
    result = subprocess.run(command, input=text, capture_output=True, cwd=cwd)
    if result.returncode == 127:
        raise MachineError("git is not installed; scripts/setup build installs it")
    return result
