"""How much of files is in the page cache."""

import subprocess
from pathlib import Path

from wallab.machine import process

_PATIENCE = 60
"""Seconds for a program that looks at a few files."""


def resident(folder: Path) -> int:
    """Return how many bytes of the folder's files are in the page cache; 0 without the folder.

    The server's user looks: the folder is that user's, and so is what leads out of it.
    """
    command: list[str | Path] = ["find", folder, "-maxdepth", "1", "-type", "f", "-exec"]
    command += ["fincore", "--bytes", "--noheadings", "--output", "RES", "{}", "+"]
    with process.started(
        command, as_server=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            sizes, _ = child.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            return 0
    return sum(map(int, sizes.split()))
