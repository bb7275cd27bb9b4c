"""Folders that go with everything in them, and with the processes whose programs are there."""

import os
import secrets
import subprocess
import time
from pathlib import Path

from wallab.errors import MachineError
from wallab.machine import mounts, running
from wallab.machine.owned import OwnedFolder


def remove(folder: Path) -> None:
    """Remove a folder with whatever a stranger made of it, however deep; nothing if it is not."""
    if os.geteuid() != 0 and folder.is_dir() and not folder.is_symlink():
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], capture_output=True)
    for _ in range(5):
        result = subprocess.run(
            ["rm", "-rf", "--one-file-system", "--", str(folder)], capture_output=True, text=True
        )
        if result.returncode == 0:
            return
        time.sleep(0.1)  # what was killed may still be at work
    raise MachineError(f"{folder} cannot be removed: {result.stderr.strip()[-300:]}")


class Folder(OwnedFolder, frozen=True):
    """A folder of the lab's own."""

    def undo(self) -> str:
        """Remove it; never through a mount, what is only shown here."""
        if not self.is_there():
            return ""
        if mounted := mounts.below(self.path):
            raise MachineError(f"{self.path} stays, for something is mounted at {mounted[0]}")
        done = running.end_below(self.path)
        remove(self.path)
        return "; ".join([*done, f"removed {self.path}"])


def named(parent: Path, name: str) -> Folder:
    """Return a folder below the parent, to be made, with a name that nobody can have guessed."""
    return Folder(parent / f"{name}-{secrets.token_hex(4)}")
