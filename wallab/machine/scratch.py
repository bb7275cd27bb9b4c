"""Folders that go with everything in them, and with the processes whose programs are there."""

import secrets
import shutil
from pathlib import Path

from wallab.errors import MachineError
from wallab.machine import mounts, running
from wallab.machine.owned import OwnedFolder


class Folder(OwnedFolder, frozen=True):
    """A folder of the lab's own."""

    def undo(self) -> str:
        """Remove it; never through a mount, what is only shown here."""
        if not self.is_there():
            return ""
        if mounted := mounts.below(self.path):
            raise MachineError(f"{self.path} stays, for something is mounted at {mounted[0]}")
        done = running.end_below(self.path)
        shutil.rmtree(self.path, ignore_errors=True)
        if self.is_there():
            raise MachineError(f"{self.path} could not be removed")
        return "; ".join([*done, f"removed {self.path}"])


def named(parent: Path, name: str) -> Folder:
    """Return a folder below the parent, to be made, with a name that nobody can have guessed."""
    return Folder(parent / f"{name}-{secrets.token_hex(4)}")
