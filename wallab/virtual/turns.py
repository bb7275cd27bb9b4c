"""What lets the emulator's main loop and its processor take turns: a library that it preloads."""

from pathlib import Path

from wallab import paths
from wallab.machine import provision

IN_TURNS = "qemu in turns"
"""What the library calls the emulator's process once turns are taken."""


def library() -> Path:
    """Return where it is, named by its sources; compiled where it is not yet.

    MachineError where there is nothing to compile it with.
    """
    file = provision.turns_library()
    provision.have_program(paths.TURNS, file)
    return file


def digest() -> str:
    """Return the digest of its sources: what it does is the same from any compiler."""
    return provision.turns_library().parent.name


def taken(pid: int) -> bool:
    """Whether the emulator of that process takes turns, once its processor has waited."""
    return Path(f"/proc/{pid}/comm").read_text().rstrip("\n") == IN_TURNS
