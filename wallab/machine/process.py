"""Child processes that never outlive the lab."""

import contextlib
import ctypes
import functools
import os
import pwd
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, TypedDict, Unpack

from wallab.errors import LabError
from wallab.machine.provision import SERVER_USER

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def _die_with_parent(deadly: signal.Signals) -> Callable[[], None]:
    """Return what a child runs before exec so that it gets the signal when the lab dies."""
    parent = os.getpid()

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(deadly), 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return prepare


def _all(steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        step()


def _go_to(folder: Path) -> None:
    """Go to a folder, in a child before exec that is the server's user by then.

    Where a link of that user's leads is that user's affair; subprocess itself goes as root.
    """
    try:
        os.chdir(folder)
    except OSError as error:
        os.write(2, f"{folder}: {error.strerror}\n".encode())
        os._exit(1)


def server_environment() -> dict[str, str]:
    """Return the variables that servers, and the programs that come with them, know."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def server_user() -> str | None:
    """The user that servers run as, or None where the lab does not run as root."""
    return SERVER_USER if os.geteuid() == 0 else None


def server_owner() -> int:
    """The number of the user that servers run as: the lab's own where it is not root."""
    user = server_user()
    return pwd.getpwnam(user).pw_uid if user else os.geteuid()


def own(path: Path) -> None:
    """Give the path, in a folder that is root's, to the user that servers run as."""
    if user := server_user():
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def make_folders(*folders: Path) -> None:
    """Make folders, if there are none, as the user that servers run as; LabError if that fails.

    For folders below those where that user can write.
    """
    must_run(["mkdir", "-p", "--", *folders], "mkdir")


def pinned(command: Sequence[str | Path], cpus: int | None, skipped: int = 0) -> list[str | Path]:
    """Return the command, bound to so many of the CPUs that the lab may use, after those skipped.

    None: to all of them.
    """
    if cpus is None:
        return list(command)
    chosen = sorted(os.sched_getaffinity(0))[skipped:][:cpus]
    return ["taskset", "--cpu-list", ",".join(map(str, chosen)), *command]


CONTAINER = ("--pid", "--fork", "--kill-child", "--mount-proc")
"""Options of unshare(1) for processes that all end with the first of them.

Their /proc shows them alone, for tests that look at their servers there, in a mount namespace that
is theirs, too."""


@functools.cache
def namespaces_refused(*options: str, command: tuple[str, ...] = ("true",)) -> str:
    """Say why this machine runs no command in namespaces of its own; nothing if it does.

    The options, of unshare(1), name the namespaces.
    """
    try:
        result = subprocess.run(
            ["unshare", *options, *command], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if result.returncode == 0 else result.stderr.strip() or "unshare fails"


class Options(TypedDict, total=False):
    """How a child is started."""

    as_server: bool
    """As the user that PostgreSQL runs as."""
    bare: bool
    """With as little of the lab's environment as the server's user sees."""
    die_with_parent: bool
    """It gets the deadly signal when the lab dies, however it dies; the default."""
    deadly: signal.Signals
    cwd: Path | None
    environment: dict[str, str] | None
    stdin: int | IO[bytes] | None
    stdout: int | IO[bytes] | None
    stderr: int | IO[bytes] | None


_Handler = Callable[[int, FrameType | None], object]


class _Delay:
    """Interrupts that come between `begin` and `end` are acted on by `end`.

    subprocess forgets a child whose start is interrupted, and the child goes on.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, _Handler] = {}
        self._pending: list[tuple[_Handler, int]] = []

    def begin(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # no handler runs there
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if callable(handler):  # what is ignored stays so, for the child, too
                self._handlers[number] = handler
                signal.signal(number, functools.partial(self._note, handler))

    def _note(self, handler: _Handler, number: int, frame: FrameType | None) -> None:
        self._pending.append((handler, number))

    def end(self) -> None:
        """Act on them, and on those to come, as before; safe to call twice."""
        while self._handlers:
            signal.signal(*self._handlers.popitem())
        while self._pending:
            handler, number = self._pending.pop(0)
            handler(number, None)


def spawn(command: Sequence[str | Path], **options: Unpack[Options]) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, so that Ctrl-C reaches the lab alone.

    Whoever calls this ends it; `started` does so by itself. A child whose start is interrupted is
    ended before the interrupt goes on.
    """
    delay = _Delay()
    delay.begin()
    try:
        child = _start(command, **options)
    except BaseException:
        delay.end()
        raise
    try:
        delay.end()
    except BaseException:
        end_group(child)
        raise
    return child


@contextlib.contextmanager
def started(
    command: Sequence[str | Path], **options: Unpack[Options]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child as `spawn` does, and end its group when the block ends, however it ends."""
    delay = _Delay()
    delay.begin()
    try:
        child = _start(command, **options)
        try:
            delay.end()
            yield child
        finally:
            end_group(child)
    finally:
        delay.end()


def _start(
    command: Sequence[str | Path],
    *,
    as_server: bool = False,
    bare: bool = False,
    die_with_parent: bool = True,
    deadly: signal.Signals = signal.SIGKILL,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    user = server_user() if as_server else None
    preparations: list[Callable[[], None]] = []
    if die_with_parent:
        preparations.append(_die_with_parent(deadly))
    if user and cwd:
        preparations.append(functools.partial(_go_to, cwd))
        cwd = None
    base = server_environment() if as_server or bare else dict(os.environ)
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd or (Path("/") if as_server else None),
        env=base | (environment or {}),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        # Runs after the change of user, which would clear the setting.
        preexec_fn=functools.partial(_all, preparations) if preparations else None,  # noqa: PLW1509
        user=user,
        group=user,
        extra_groups=[] if user else None,
        umask=0o077 if as_server else 0o022 if bare else -1,
    )


def must_run(command: Sequence[str | Path], what: str) -> None:
    """Run a program as the user that servers run as; LabError with its last words if it fails."""
    with started(
        command, as_server=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as child:
        must_end(child, what)


def must_end(child: subprocess.Popen[bytes], what: str) -> None:
    """Wait for a child whose standard error is a pipe; LabError with its last words if it fails."""
    _, errors = child.communicate()
    if child.returncode:
        raise LabError(f"{what} failed: {errors.decode(errors='replace').strip()[-500:]}")


def end(child: subprocess.Popen[bytes], how: signal.Signals, patience: float) -> None:
    """Send the signal and wait; past the patience (s), kill the child's whole group."""
    if child.poll() is not None:
        return
    child.send_signal(how)
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the child's session: its group, if the child has not ended by itself."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # what nobody read is not missed
                stream.close()
