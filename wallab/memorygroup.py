"""A limit on the memory of a server and of all that it starts, page cache included."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from wallab.errors import MachineError

if TYPE_CHECKING:
    from wallab.ledger import Ledger

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

    def close(self) -> None:
        """Remove the group, whose processes must have ended."""
        remove(self.path)


def remove(path: Path) -> bool:
    """Remove a group that has no process any more; return whether it is gone."""
    with contextlib.suppress(OSError):
        path.rmdir()
    return not path.exists()
