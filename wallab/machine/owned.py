"""Things on this machine that the lab made, or changed: each knows how it is undone.

They are noted in a ledger, and undone in the same way by the lab that owns them and by the next
start, after a kill.
"""

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec


class Owned(msgspec.Struct, frozen=True, tag=True):
    """Something to be undone, told from what may be in its place by then."""

    def undo(self) -> str:
        """Undo it, and say what was done; nothing if there was nothing to do.

        MachineError, with the reason, if it is still to be done.
        """
        raise NotImplementedError


class OwnedFolder(Owned, frozen=True):
    """A folder, or a control group, that the lab made: its name alone may be another's by now."""

    path: Path
    inode: int = 0
    """0 where a kill came before it was noted."""

    def is_there(self) -> bool:
        """Whether the folder exists, and is the one that the lab made."""
        try:
            return self.inode in {0, self.path.lstat().st_ino}
        except OSError:
            return False


Made = TypeVar("Made", bound=OwnedFolder)


class Owner(Protocol):
    """What notes things before they are made or changed, and undoes them: a ledger."""

    def add(self, thing: Owned) -> None:
        """Note a thing that is to be undone, before it is made or changed."""

    def make(self, folder: Made, mode: int = 0o755) -> Made:
        """Make a folder that is to go, and return it as it can be told from others."""

    def undo(self, thing: Owned) -> None:
        """Undo the thing now; it stays noted, to be tried again, where that fails."""
