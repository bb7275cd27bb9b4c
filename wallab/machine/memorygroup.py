"""A limit on the memory of a server and of all that it starts, page cache included."""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from wallab.errors import MachineError
from wallab.machine.owned import OwnedFolder, Owner

PATIENCE = 5.0
"""Seconds that processes which were killed have to leave a group."""

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")


def _home() -> tuple[Path, str] | None:
    """Return where groups are made and the name of the limit's file; None where there are none."""
    if (_V1 / "memory.limit_in_bytes").exists():
        return _V1, "memory.limit_in_bytes"
    with contextlib.suppress(OSError):
        if "memory" in (_V2 / "cgroup.subtree_control").read_text().split():
            return _V2, "memory.max"
    return None


def lacking() -> str:
    """Say why this machine cannot limit memory; nothing if it can."""
    home = _home()
    if home is None:
        return "this machine has no control groups for memory"
    # A container may see the groups and not be let in.
    return "" if os.access(home[0], os.W_OK) else f"{home[0]} cannot be written"


class Group(OwnedFolder, frozen=True):
    """A control group of the lab's own."""

    def kill(self) -> bool:
        """Kill all processes of the group; return whether there were any."""
        with contextlib.suppress(OSError):
            pids = (self.path / "cgroup.procs").read_text().split()
            for pid in map(int, pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return bool(pids)
        return False

    def undo(self) -> str:
        """Remove the group, with the processes that are still in it."""
        if not self.is_there():
            return ""
        deadline = time.monotonic() + PATIENCE
        while self.is_there():
            try:
                self.path.rmdir()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise MachineError(
                        f"the control group {self.path} could not be removed: {error.strerror}"
                    ) from None
                self.kill()
                time.sleep(0.02)
        return f"removed the control group {self.path}"


class MemoryGroup:
    """A control group with a limit; processes are put into it one by one."""

    def __init__(self, name: str, limit: int, owner: Owner) -> None:
        """Make the group; limit in bytes. MachineError where that cannot be done.

        What others made is not taken over: nobody guesses what is put behind the name.
        """
        home = _home()
        if home is None:
            raise MachineError(f"{lacking()}; give it one, or take memory_mb out of the experiment")
        folder, file = home
        self.path = folder / f"{name}-{secrets.token_hex(4)}"
        self._file = self.path / file
        self._owner = owner
        try:
            self._group = owner.make(Group(self.path))
            try:
                self._file.write_text(str(limit))
            except OSError:
                owner.undo(self._group)
                raise
        except OSError as error:
            raise MachineError(f"{self.path}: {error.strerror}") from None

    @property
    def limit(self) -> int:
        """The limit in bytes, as the kernel tells it."""
        return int(self._file.read_text())

    def add(self, pid: int) -> None:
        """Put a process into the group; those that it starts later are in it, too."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def page_cache(self) -> int:
        """Return the bytes of files that count as the group's, without shared memory."""
        lines = (self.path / "memory.stat").read_text().splitlines()
        figures = {name: int(figure) for name, figure in map(str.split, lines)}
        # “cache” in the first version of control groups, “file” in the second.
        return figures.get("cache", figures.get("file", 0)) - figures.get("shmem", 0)

    @staticmethod
    def waiting(command: Sequence[str | Path]) -> list[str | Path]:
        """Return the command behind a shell that waits for `admit`; its stdin must be a pipe."""
        return ["sh", "-c", 'read -r go; exec "$@" </dev/null', "sh", *command]

    def admit(self, child: "subprocess.Popen[bytes]", pid: int | None = None) -> None:
        """Put a waiting child into the group, and let it go on: all that it starts is inside.

        `pid` is the process that waits, where that is not the child itself.
        """
        assert child.stdin is not None
        self.add(child.pid if pid is None else pid)
        with child.stdin as waiting:
            waiting.write(b"go\n")

    def kills(self) -> int:
        """Return how often the kernel has killed a process of the group for its memory."""
        with contextlib.suppress(OSError):
            file = "memory.events" if self._file.name == "memory.max" else "memory.oom_control"
            lines = (self.path / file).read_text().splitlines()
            return int(dict(map(str.split, lines)).get("oom_kill", 0))
        return 0

    def kill(self) -> bool:
        """Kill all processes of the group; return whether there were any."""
        return self._group.kill()

    def close(self) -> None:
        """Remove the group, with what is left in it."""
        self._owner.undo(self._group)
