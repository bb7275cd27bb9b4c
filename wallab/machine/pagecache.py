"""How much of files is in the page cache."""

import subprocess
from pathlib import Path


def resident(folder: Path) -> int:
    """Return how many bytes of the folder's files are in the page cache; 0 without the folder."""
    files = [str(file) for file in folder.iterdir()] if folder.is_dir() else []
    if not files:
        return 0
    command = ["fincore", "--bytes", "--noheadings", "--output", "RES", *files]
    sizes = subprocess.run(command, capture_output=True, text=True)
    return sum(map(int, sizes.stdout.split()))
