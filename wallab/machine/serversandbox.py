"""The sandbox of servers at work, and of the programs that come with them: bubblewrap's.

They see programs, read-only, and what they work with; they have processes, memory that is shared,
and a network of nobody of their own. Bubblewrap makes the walls and waits; inside, a shell of
root's is the first process, with which all others end, however they were started. So nothing of
them is mounted or open any more when bubblewrap has ended.
"""

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import psutil

from wallab.errors import MachineError
from wallab.machine import process, sandbox, scratch
from wallab.machine.confinement import Confinement, Places, Program
from wallab.machine.process import Options

PROCESSES = 4096
"""And threads, of the user who runs servers, which those of other labs on this machine share."""

PATIENCE = 60.0
"""Seconds that processes have to begin, and to be gone after they were killed."""

_KEPT = 'umask 077; "$@"; exit $?'
_LASTING = """\
umask 077
"$@"
code=$?
# A server's processes outlive a postmaster that was killed, until they notice.
while kill -0 -1 2>/dev/null; do sleep 0.02; done
exit $code"""
"""What the first process does. It keeps root's number, so that nobody inside can stop it."""


def confinement(*, guest: bool) -> Confinement:
    """Return how servers are run on this machine; MachineError where strangers' must not be.

    `guest`: whether the code of any of them is a stranger's.
    """
    return ServerSandbox() if sandbox.kind(guest=guest) == "bwrap" else Confinement()


class ServerSandbox(Confinement):
    """Runs programs with walls around them."""

    def __init__(self) -> None:
        self._scratch = psutil.virtual_memory().total // 2
        """Bytes that /dev/shm and /tmp can take, as Linux has it by default."""

    def prepare(self, places: Places) -> None:
        """Have the folders that are to be written, as the user that servers run as."""
        process.make_folders(*places.writable)

    def renew(self, *folders: Path) -> None:
        """Make the folders anew: those before may have been other strangers'."""
        for folder in folders:
            scratch.remove(folder)
            folder.mkdir(mode=0o755)
            process.own(folder)

    def _call(
        self,
        command: Sequence[str | Path],
        places: Places,
        options: Options,
        script: str = _KEPT,
    ) -> tuple[Sequence[str | Path], Options]:
        name = process.server_user()
        known = process.server_environment() | (options.get("environment") or {})
        call = sandbox.bubblewrap(name, self._scratch)
        call += sandbox.view(_same(places.readable), _same(places.writable))
        for variable, value in known.items():
            call += ["--setenv", variable, value]
        call += ["--as-pid-1", "--chdir", "/", "--", "sh", "-c", script, "sh"]
        call += [*sandbox.become(name), "prlimit", f"--nproc={PROCESSES}", "--"]
        outer: Options = {
            **options,
            "bare": True,
            "environment": None,
            "cwd": Path("/"),
            "deadly": signal.SIGKILL,
        }
        return [*call, *command], outer

    def end(self, child: subprocess.Popen[bytes]) -> None:
        _end(child)

    def foreground(
        self, command: Sequence[str | Path], places: Places, environment: dict[str, str]
    ) -> int:
        terminal = {name: os.environ[name] for name in ("TERM",) if name in os.environ}
        known: Options = {"environment": environment | terminal}
        call = list(map(str, self._call(command, places, known)[0]))
        if not (os.isatty(0) and os.isatty(1)):
            return subprocess.run(call).returncode
        # Not the lab's own terminal, into which a stranger's program could type.
        call.remove("--new-session")
        return os.waitstatus_to_exitcode(pty.spawn(call, _read_in_its_size))

    def start(
        self, command: Sequence[str | Path], places: Places, **options: Unpack[Options]
    ) -> Program:
        command, options = self._call(command, places, options, _LASTING)
        child = process.spawn(command, **options)
        try:
            return _Walled(child)
        except BaseException:
            _end(child)
            raise


class _Walled(Program):
    """A program behind walls; its processes are seen from here by other numbers than inside."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until the program has begun, or bubblewrap has given up."""
        super().__init__(child)
        self._process: int | None = None
        self._pid = child.pid
        deadline = time.monotonic() + PATIENCE
        while self._process is None and child.poll() is None:
            if time.monotonic() > deadline:
                raise MachineError("bubblewrap does not begin")
            time.sleep(0.005)
            with contextlib.suppress(psutil.Error, OSError):
                for first in _children(child.pid):
                    for second in _children(first):
                        self._take(second, first)

    def _take(self, pid: int, parent: int) -> None:
        """Take the process if it is the second in there; OSError if it has gone."""
        opened = os.pidfd_open(pid)
        try:
            # Only now nobody else gets its number.
            if _is(pid, parent, inside=2):
                self._process, self._pid = os.dup(opened), pid
        finally:
            os.close(opened)

    @property
    def pid(self) -> int:
        return self._pid

    def alive(self) -> bool:
        return self._process is not None and not _has_ended(self._process, 0)

    def end(self, how: signal.Signals, patience: float) -> None:
        """Send the signal, and wait; then kill what is left. MachineError if it does not go."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, how)
            _has_ended(self._process, patience)
        _end(self.child)
        if self._process is not None:
            os.close(self._process)
            self._process = None


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the first process in there, and wait for bubblewrap, whose child it is.

    MachineError if it does not go: a process that waits for a drive may not.
    """
    deadline = time.monotonic() + PATIENCE
    while child.poll() is None and time.monotonic() < deadline:
        # Bubblewrap itself is not killed: it would leave what it just begins.
        with contextlib.suppress(psutil.Error, OSError):
            for first in _children(child.pid):
                opened = os.pidfd_open(first)
                try:
                    if _is(first, child.pid, inside=1):
                        signal.pidfd_send_signal(opened, signal.SIGKILL)
                finally:
                    os.close(opened)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.02)
    ended = child.poll() is not None
    process.end_group(child)
    if not ended:
        raise MachineError(f"the processes of a server were not gone {PATIENCE:.0f} s after a kill")


def _read_in_its_size(terminal: int) -> bytes:
    """Read from a terminal that is to be as large as the lab's."""
    size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    return os.read(terminal, 1 << 16)


def _same(places: Sequence[Path]) -> dict[Path, Path]:
    return {place: place for place in sorted(places)}


def _children(pid: int) -> list[int]:
    """Return the children of a process of one thread; an error of either kind if it has gone."""
    file = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return list(map(int, file.read_text().split()))
    except FileNotFoundError:  # some kernels do not tell
        return [child.pid for child in psutil.Process(pid).children()]


def _is(pid: int, parent: int, *, inside: int) -> bool:
    """Whether the process has that parent, and that number in its own namespace."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    return status["PPid"] == [str(parent)] and status["NSpid"][-1] == str(inside)


def _has_ended(opened: int, patience: float) -> bool:
    """Wait for a process, so long at most (s); return whether it has ended."""
    poll = select.poll()
    poll.register(opened, select.POLLIN)
    return bool(poll.poll(patience * 1000))
