"""A limit on the memory of a server and of all that it starts, page cache included."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wallab.errors import MachineError

if TYPE_CHECKING:
    from wallab.machine.ledger import Ledger

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


class MemoryGroup:
    """A control group with a limit; processes are put into it one by one."""

    def __init__(self, name: str, limit: int, ledger: "Ledger") -> None:
        """Make the group; limit in bytes. MachineError where that cannot be done."""
        home = _home()
        if home is None:
            raise MachineError(f"{lacking()}; give it one, or take memory_mb out of the experiment")
        folder, file = home
        self.path = folder / name
        self._file = self.path / file
        ledger.add_group(self.path)
        try:
            self.path.mkdir()
            self._file.write_text(str(limit))
        except OSError as error:
            with contextlib.suppress(OSError):
                self.path.rmdir()
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
        found = {name: int(figure) for name, figure in map(str.split, lines)}
        # “cache” in the first version of control groups, “file” in the second.
        return found.get("cache", found.get("file", 0)) - found.get("shmem", 0)

    @staticmethod
    def waiting(command: Sequence[str | Path]) -> list[str | Path]:
        """Return the command behind a shell that waits for `admit`; its stdin must be a pipe."""
        return ["sh", "-c", 'read -r go; exec "$@" </dev/null', "sh", *command]

    def admit(self, child: "subprocess.Popen[bytes]") -> None:
        """Put a waiting child into the group, and let it go on: all that it starts is inside."""
        assert child.stdin is not None
        self.add(child.pid)
        with child.stdin as waiting:
            waiting.write(b"go\n")

    def kills(self) -> int:
        """Return how often the kernel has killed a process of the group for its memory."""
        with contextlib.suppress(OSError):
            file = "memory.events" if self._file.name == "memory.max" else "memory.oom_control"
            lines = (self.path / file).read_text().splitlines()
            return int(dict(map(str.split, lines)).get("oom_kill", 0))
        return 0

    def kill(self) -> None:
        """Kill all processes of the group."""
        kill(self.path)

    def close(self) -> None:
        """Remove the group, whose processes must have ended."""
        remove(self.path)


def kill(path: Path) -> bool:
    """Kill all processes of a group; return whether there were any."""
    with contextlib.suppress(OSError):
        pids = (path / "cgroup.procs").read_text().split()
        for pid in map(int, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)
    return False


def remove(path: Path) -> bool:
    """Remove a group that has no process any more; return whether it is gone."""
    with contextlib.suppress(OSError):
        path.rmdir()
    return not path.exists()
