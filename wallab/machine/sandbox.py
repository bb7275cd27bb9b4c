"""Where the code of strangers is built and tested: as a user who has nothing of the machine's.

Bubblewrap gives it processes, a network of nobody and a view of the files that has programs,
read-only, and its own folder. In a container without the right to make namespaces, the container
has to be all that. Limits are the same in both. Servers at work have a sandbox of the same walls
(serversandbox.py).
"""

import contextlib
import fcntl
import functools
import os
import pwd
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

import msgspec
import psutil

from wallab import paths
from wallab.duration import duration
from wallab.errors import LabError, MachineError
from wallab.machine import container, memorygroup, process
from wallab.machine.ledger import Ledger
from wallab.machine.memorygroup import MemoryGroup
from wallab.machine.provision import BUILD_USER, GUEST_USER

Kind = Literal["bwrap", "container", "none"]

SETTING = "WALLAB_NO_SANDBOX"
"""The environment's word for --no-sandbox."""

# Programs, libraries and their settings. What is not named does not exist inside: homes, mail,
# other people's files, sockets of services, and the lab's results.
_SHOWN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix")
_PASSED = ("PATH", "CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR")
"""Variables of the user's that a build sees; others may be secrets."""

PACKAGES = Path(msgspec.__file__).parents[1]
"""Where the Python packages are that the lab uses."""

_NOBODY = "65534"
"""A user that every machine has, by number: its group has other names on some."""

_SIOCGIFFLAGS = 0x8913
_IFF_UP = 1
_GIB = 1 << 30


class Limits(msgspec.Struct, frozen=True):
    """What everything in a sandbox may take together."""

    memory: int
    """Bytes, page cache included; of each process alone where there are no control groups."""
    processes: int = 1024
    """And threads."""
    seconds: float = 2 * 3600.0
    """Of one command."""
    disk: int = 16 * _GIB
    """Bytes in its folder, unless nine tenths of what is free are less."""
    files: int = 500_000
    """In its folder."""
    output: int = 256 << 20
    """Bytes that one command prints."""
    scratch: int = _GIB
    """Bytes in each of /tmp and /dev/shm, where these are its own."""


def default_limits(clusters: int = 0) -> Limits:
    """Return the limits on this machine of a build, or of tests with so many clusters at a time."""
    memory = max(psutil.virtual_memory().total * 3 // 4, _GIB)
    return Limits(memory=memory, processes=1024 + 256 * clusters)


FULL = "the disk is all but full"
"""The limit that is the machine's, not the sandbox's."""


class Stopped(LabError):
    """A command was ended for a limit; the message says which."""


def user(*, guest: bool) -> str | None:
    """Return who runs in the sandbox; None for the user who runs the lab, where that is not root.

    MachineError where the user does not exist yet.
    """
    if os.geteuid() != 0:
        return None
    name = GUEST_USER if guest else BUILD_USER
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise MachineError(f"there is no user {name}; run scripts/setup build") from None
    return name


def owner(*, guest: bool) -> int:
    """Return the number of that user."""
    name = user(guest=guest)
    return os.geteuid() if name is None else pwd.getpwnam(name).pw_uid


@functools.cache
def refused() -> str:
    """Say why bubblewrap makes no sandbox on this machine; nothing if it does."""
    name = _NOBODY if os.geteuid() == 0 else None
    command = [*bubblewrap(name, 1 << 20), "--", *become(name), "true"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, env=_bare()
        )
    except FileNotFoundError:
        return "it is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if result.returncode == 0 else result.stderr.strip()[-300:] or "it fails"


def kind(*, guest: bool = True) -> Kind:
    """Return which sandbox there is; MachineError if there is none, and the user wants one.

    A container counts as one if it has no network, or if what is built or run there is the lab's
    own, or came with its image.
    """
    if os.environ.get(SETTING):
        return "none"
    reason = refused()
    if not reason:
        return "bwrap"
    if container.image():
        if guest and container.image() != "lab" and (network := _network()):
            raise MachineError(
                f"this container has a network ({network}), which strangers' patches must not "
                "reach: build them with “docker compose run --rm builder”, run them with “docker "
                "compose run --rm patched”, or either with “docker run --network none …”; or, if "
                "you trust them, with --no-sandbox"
            )
        return "container"
    raise MachineError(
        f"no sandbox for patched code: bubblewrap makes none here ({reason}). Install it (scripts/"
        "setup build), and let this user make namespaces; or, if you trust all patches, do "
        f"without: --no-sandbox, or {SETTING}=1"
    )


def _network() -> str:
    """Name the interfaces that are up, but for the one to oneself."""
    names = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("16sH14x", name.encode(), 0)
            with contextlib.suppress(OSError):  # it has just gone
                answer = fcntl.ioctl(asking, _SIOCGIFFLAGS, request)
                if name != "lo" and struct.unpack("16sH14x", answer)[1] & _IFF_UP:
                    names.append(name)
    return ", ".join(names)


def _bare() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def bubblewrap(name: str | None, scratch: int) -> list[str]:
    """Return the beginning of a command in bubblewrap, run by the named user or the lab's own.

    Root makes the namespaces and becomes the user inside, so that no right is left to the user's
    own number, and folders can be shown that lie where that user may not pass.
    """
    # Bubblewrap refuses users whom somebody else gave rights.
    command = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all"] if name is None else []
    command += ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"]
    if name is None:
        command += ["--unshare-user", "--disable-userns"]
    else:
        for right in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            command += ["--cap-add", right]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for place in ("/dev/shm", "/tmp", "/var/tmp"):  # noqa: S108 - its own
        command += ["--perms", "1777", "--size", str(scratch), "--tmpfs", place]
    for top in map(Path, _SHOWN):
        if top.is_symlink():
            command += ["--symlink", str(top.readlink()), str(top)]
        else:
            command += [*_parents(top), "--ro-bind-try", str(top), str(top)]
    return command


def become(name: str | None, *, alone: bool = False) -> list[str]:
    """Become the user, for good; `alone` outside of a process namespace."""
    if name is None:
        return []
    command = ["setpriv", "--reuid", name, "--regid", name, "--clear-groups", "--no-new-privs"]
    command += ["--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"]
    return [*command, "--pdeathsig=KILL"] if alone else command


def view(readable: Mapping[Path, Path], writable: Mapping[Path, Path]) -> list[str]:
    """Return bubblewrap's options for what is seen of the lab: place inside -> place outside."""
    command: list[str] = []
    for place in _hidden():
        command += [*_parents(place), "--perms", "0755", "--tmpfs", str(place)]
    for place, outside in sorted(readable.items()):
        if place == outside and _is_shown(place) and not _is_hidden(place):
            continue
        command += [*_parents(place), "--ro-bind", str(outside), str(place)]
    for place, outside in writable.items():
        command += [*_parents(place), "--bind", str(outside), str(place)]
    return command


def environment() -> dict[str, str]:
    """Return the user's variables that are known inside."""
    return {name: os.environ[name] for name in _PASSED if os.environ.get(name)}


def lab_folders() -> list[Path]:
    """Return what the lab's own Python needs inside."""
    return [Path(sys.prefix), Path(sys.base_prefix), PACKAGES, paths.LAB / "wallab"]


def used(folder: Path, what: str = "--block-size=1") -> int:
    """Return the bytes that a folder takes, as du(1) says, which gets through any depth."""
    command = ["du", "--summarize", "--one-file-system", what, "--", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    return int(answer.split()[0]) if answer.split() else 0


class Sandbox:
    """Runs commands that can write one folder and reach nothing else."""

    def __init__(
        self,
        folder: Path,
        *,
        guest: bool,
        shown_at: Path | None = None,
        writable: Sequence[Path] = (),
        readable: dict[Path, Path] | Sequence[Path] = (),
        limits: Limits | None = None,
    ) -> None:
        """Take the folder, which the sandbox's user owns, shown inside where it is or elsewhere.

        `writable` are more such folders, `readable` what else of the lab is seen (place inside ->
        place outside). MachineError where there is no sandbox.
        """
        self.kind = kind(guest=guest)
        self.user = user(guest=guest)
        self.limits = limits or default_limits()
        self.folder = folder
        self.inside = (shown_at or folder) if self.kind == "bwrap" else folder
        """Where the folder is for those inside."""
        self._writable = {self.inside: folder} | {path: path for path in writable}
        places = readable if isinstance(readable, dict) else {path: path for path in readable}
        self._readable = places
        self._ledger: Ledger | None = None
        self._group: MemoryGroup | None = None
        if self.kind != "bwrap":
            self._refuse_unreachable()

    def _refuse_unreachable(self) -> None:
        """MachineError where the user may not pass the parents of what it has to see."""
        for place in (*self._writable.values(), *self._readable.values()):
            for parent in place.parents if self.user else ():
                if parent.exists() and not parent.stat().st_mode & 0o001:
                    raise MachineError(
                        f"without bubblewrap builds run as {self.user}, who may not pass {parent} "
                        f"to {place}: put the cache elsewhere with WALLAB_CACHE=DIRECTORY, and "
                        "the lab where everybody can read it"
                    )

    def __enter__(self) -> "Sandbox":
        if os.geteuid() == 0 and not memorygroup.lacking():
            name = f"{os.getpid()}-{secrets.token_hex(4)}"
            self._ledger = Ledger.open(name)
            try:
                self._group = MemoryGroup(
                    f"wal-lab-sandbox-{name}", self.limits.memory, self._ledger
                )
            except BaseException:
                self._ledger.close()
                raise
        self._begun = os.statvfs(self.folder)
        self._held = used(self.folder)
        free = self._begun.f_bavail * self._begun.f_frsize
        self._disk = min(self.limits.disk, self._held + free * 9 // 10)
        self._look_again = 0.0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill_rest()
        if self._group is not None:
            self._group.close()
        if self._ledger is not None:
            self._ledger.close()

    def command(
        self, command: Sequence[str | Path], cwd: Path, variables: dict[str, str]
    ) -> list[str]:
        """Return the command as it is run outside, so that it runs inside."""
        limits = [f"--fsize={self._disk}", "--core=0"]
        if self.user or self.kind == "bwrap":  # else all that the user runs would count
            limits.append(f"--nproc={self.limits.processes}")
        if self._group is None:
            limits.append(f"--data={self.limits.memory}")
        inner = ["prlimit", *limits, "--", *map(str, command)]
        home = "/tmp" if self.kind == "bwrap" else str(self.folder)  # noqa: S108 - its own
        # LANG decides nothing beside LC_ALL, but a compiler cache looks at it.
        words = {"LC_ALL": "C", "LANG": "C.UTF-8"}
        known = {"HOME": home, "TMPDIR": home, **words, **environment(), **variables}
        if self.kind == "bwrap":
            outer = bubblewrap(self.user, self.limits.scratch)
            outer += view(self._readable, self._writable)
            for name, value in known.items():
                outer += ["--setenv", name, value]
            outer += ["--chdir", str(cwd), "--", *become(self.user)]
        else:
            pairs = [f"{name}={value}" for name, value in known.items()]
            outer = [*become(self.user, alone=True), "env", "-i", f"--chdir={cwd}", *pairs]
        if self._group is not None:
            # Whoever starts it is root still, so that it is in the group before it is anybody.
            join = 'echo $$ >"$0" && exec "$@"'
            outer = ["sh", "-c", join, str(self._group.path / "cgroup.procs"), *outer]
        return [*outer, *inner]

    def start(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        variables: dict[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start a command, its errors where its output goes; `check` it, and `settle` at its end.

        It ends with the lab, however that ends.
        """
        return process.spawn(
            self.command(command, cwd or self.inside, variables or {}),
            bare=True,
            cwd=Path("/"),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.STDOUT,
        )

    def check(self, begun: float) -> str:
        """Say which limit a command has reached that began then (monotonic, s); nothing if none."""
        if time.monotonic() - begun > self.limits.seconds:
            return f"it ran for more than {duration(self.limits.seconds)}"
        now = os.statvfs(self.folder)
        written = (self._begun.f_bavail - now.f_bavail) * now.f_frsize
        made = self._begun.f_favail - now.f_favail
        if written > self._begun.f_bavail * now.f_frsize * 19 // 20:
            return FULL  # also by files that have no name any more
        # Somebody else may have written it; then it is looked at again, but not all the time.
        much = written > self._disk - self._held or made > self.limits.files
        if much and time.monotonic() > self._look_again:
            if used(self.folder) > self._disk:
                if self._disk < self.limits.disk:
                    return FULL
                return f"it wrote more than {_size(self._disk)}"
            if used(self.folder, "--inodes") > self.limits.files:
                return f"it made more than {self.limits.files:,} files"
            self._look_again = time.monotonic() + 15
        return ""

    def settle(self, child: subprocess.Popen[bytes], *, others: bool = False) -> None:
        """End the command and all that it started; with `others` at work only what is its own."""
        process.end_group(child)
        if not others:
            self._kill_rest()

    def _kill_rest(self) -> None:
        """End what left the command's group, and wait for what ends with its namespace."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            rest = self._group is not None and self._group.kill()
            if self.kind != "bwrap" and self.user is not None:
                rest = _kill_all_of(self.user) or rest
            if not rest:
                return
            time.sleep(0.01)

    def lines(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        variables: dict[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
    ) -> Iterator[bytes]:
        """Run a command and yield its lines, or parts of very long ones.

        CalledProcessError if it fails, Stopped if it reaches a limit.
        """
        kills = self._group.kills() if self._group else 0
        begun = time.monotonic()
        child = self.start(command, cwd=cwd, variables=variables, stdin=stdin)
        printed = 0
        try:
            for line in _lines_of(child):
                printed += len(line)
                if printed > self.limits.output:
                    raise Stopped(f"it printed more than {_size(self.limits.output)}")
                if line:
                    yield line
                elif reason := self.check(begun):
                    if reason == FULL:
                        raise MachineError(
                            f"No space left on device: {self.folder} has filled what was free "
                            "there. Free some, or put the cache elsewhere with "
                            "WALLAB_CACHE=DIRECTORY; then run this again"
                        )
                    raise Stopped(reason)
        finally:
            self.settle(child)
        if child.returncode:
            if self._group and self._group.kills() > kills:
                raise Stopped(f"it needed more than {_size(self.limits.memory)} of memory")
            raise subprocess.CalledProcessError(child.returncode, list(map(str, command)))


def _lines_of(child: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield what the child prints, line by line or in parts of 64 KiB, and twice a second nothing.

    It is over when the child has ended, whoever still holds its output open.
    """
    assert child.stdout is not None
    rest = b""
    looked = time.monotonic()
    is_open = True
    while True:
        ended = child.poll() is not None
        if not is_open and not ended:
            time.sleep(0.05)  # it has closed its output, and goes on
        elif is_open and select.select([child.stdout], [], [], 0 if ended else 0.5)[0]:
            part = os.read(child.stdout.fileno(), 1 << 16)
            is_open = bool(part)
            *lines, rest = (rest + part).split(b"\n")
            yield from (line + b"\n" for line in lines)
            if len(rest) >= 1 << 16:
                yield rest
                rest = b""
        elif ended:
            break
        if time.monotonic() - looked > 0.5:
            looked = time.monotonic()
            yield b""
    if rest:
        yield rest


def _size(number: int) -> str:
    return f"{number / _GIB:.3g} GB" if number >= _GIB else f"{number / (1 << 20):.3g} MB"


def _is_shown(place: Path) -> bool:
    return any(place.is_relative_to(top) for top in _SHOWN)


def _hidden() -> list[Path]:
    """Return what is the lab's own where programs are shown around it."""
    own = (paths.RESULTS, paths.BUILD, paths.cache(), paths.state(), paths.runtime())
    return [place for place in own if place.is_dir() and _is_shown(place)]


def _is_hidden(place: Path) -> bool:
    return any(place.is_relative_to(folder) for folder in _hidden())


def _parents(place: Path) -> list[str]:
    """Make a place's parents, for everybody to pass, where nothing is shown."""
    command: list[str] = []
    for parent in list(place.parents)[-2::-1]:
        command += ["--perms", "0755", "--dir", str(parent)]
    return command


def _kill_all_of(name: str) -> bool:
    """Kill the processes of a user in this process namespace; return whether there were any.

    Those count that are dead and not yet fetched: they are among the processes a user may have.
    """
    number = pwd.getpwnam(name).pw_uid
    rest = False
    for file in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            status = dict(
                line.split(":", 1) for line in file.read_text().splitlines() if ":" in line
            )
            own = len(status["NSpid"].split()) == 1
            if own and str(number) in status["Uid"].split():
                os.kill(int(file.parent.name), signal.SIGKILL)
                rest = True
    return rest
