"""The lab's own checkout: digests of what in it can move a number."""

import hashlib
from pathlib import Path

from wallab.machine import provision
from wallab.paths import DIRECT_CP, LAB

CODE = (LAB / "wallab", DIRECT_CP)
SUFFIXES = {".py", ".sql", ".c", ".h", ".build"}
"""Of what is run, or is compiled to be run; the drive's own program has a digest of its own."""


def files(folders: tuple[Path, ...] = CODE) -> str:
    """Return the SHA-256 of the lab's code, with its files' names."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                digest.update(f"{folder.name}/{file.relative_to(folder)}".encode() + b"\0")
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def drive_program() -> str:
    """Return the SHA-256 of the program that simulates drives; nothing if there is none."""
    try:
        return hashlib.sha256(provision.drive_program().read_bytes()).hexdigest()
    except OSError:
        return ""
