"""The lab as it was at a commit: a work tree of its checkout, in the cache.

There is one at a time: it goes when the lab of another commit is asked for and nobody uses it.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import IO

import msgspec

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.record.build import Build
from wallab.servers import git

INPUTS = ("wallab", "drive", "direct_cp", "turns", "patches", "requirements.txt")
"""What of the lab can move a number; its matrix is in a run."""


def is_known(commit: str) -> bool:
    """Whether this checkout has the commit."""
    try:
        return bool(commit) and git.commit(paths.LAB, commit) == commit
    except (LabError, MachineError):
        return False


def is_here(commit: str) -> bool:
    """Whether this checkout has the inputs as the commit, which it knows, has them."""
    return not git.changed_since(paths.LAB, commit, *INPUTS)


def run(commit: str, module: str, *arguments: str, builds: Collection[Build]) -> None:
    """Go on as the lab of the commit, in the work tree, with a module of its commands.

    Servers of these builds that there are here come along. Returns only by MachineError.
    """
    folder = paths.cache() / "labs" / commit
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock"), fcntl.LOCK_EX) as lock:
        try:
            _remove_others(folder)
            _make(folder, commit)
            _bring(builds, folder / "build")
        except (LabError, OSError) as error:
            raise MachineError(f"the lab of commit {commit} cannot be had: {error}") from None
        if not (folder / Path(*module.split("."))).with_suffix(".py").exists():
            raise MachineError(f"the lab of commit {commit} has no {module.rpartition('.')[2]} yet")
        python = _python(folder)
        # Until the end of what comes now.
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.set_inheritable(lock.fileno(), True)
        os.chdir(folder)
        environment = os.environ | {"PYTHONPATH": str(folder)}
        os.execve(python, [str(python), "-m", module, *arguments], environment)  # noqa: S606


def _locked(file: Path, how: int) -> IO[str]:
    """Open and lock a file that others may remove while this waits; BlockingIOError if LOCK_NB."""
    while True:
        lock = file.open("w")
        try:
            fcntl.flock(lock, how)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(lock.fileno()).st_ino == file.stat().st_ino:
                    return lock
        except BaseException:
            lock.close()
            raise
        lock.close()


def _remove_others(folder: Path) -> None:
    for file in folder.parent.glob("*.lock"):
        if file.stem == folder.name:
            continue
        with contextlib.suppress(BlockingIOError), _locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(file.with_suffix(""), ignore_errors=True)
            file.unlink()


def _make(folder: Path, commit: str) -> None:
    """Have the work tree, as the commit has it; what a kill left, or somebody changed, goes."""
    if folder.exists():
        with contextlib.suppress(LabError):
            if git.state(folder) == (commit, False):
                return
        shutil.rmtree(folder)
    git.add_work_tree(paths.LAB, folder, commit)


def _bring(builds: Collection[Build], target: Path) -> None:
    """Give the work tree the servers that it would build, by links: they are never changed."""
    keys = {build.key for build in builds}
    for record in sorted(paths.BUILD.glob("*/*/build.json")):
        place = target / record.parent.relative_to(paths.BUILD)
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if place.exists() or jsonfile.load(record, Build).key not in keys:
                continue
            partial = place.with_name(f".{place.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(record.parent, partial, symlinks=True, copy_function=_link)
            partial.rename(place)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, target, follow_symlinks=False)


def _python(folder: Path) -> Path:
    """Return the Python that has the packages which the commit pins."""
    name = "requirements.txt"
    if (folder / name).read_bytes() == (paths.LAB / name).read_bytes():
        return Path(sys.executable)
    if subprocess.run([folder / "scripts" / "setup", "--quiet"], stdout=sys.stderr).returncode:
        raise MachineError("the Python packages of that commit cannot be had; see above")
    return folder / ".venv" / "bin" / "python"
