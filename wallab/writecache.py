"""Write caches: the states that a cell asks for, and what is read back in each."""

from typing import Literal

WriteCache = Literal["off", "on", "on-unflushed", "battery", "as-is"]
WRITE_CACHES: tuple[WriteCache, ...] = ("off", "on", "on-unflushed", "battery")
"""The states that a drive can be switched to; “as-is” is that of a directory."""

# What the kernel is told: with “write through” it sends no flushes.
# Controllers whose battery keeps their cache tell it that, too.
_KERNEL_MODE = {
    "off": "write through",
    "on": "write back",
    "on-unflushed": "write through",
    "battery": "write through",
    "as-is": "as-is",
}


def as_read_back(state: WriteCache) -> dict[str, str]:
    """Return what `Drive.write_cache` reads back in that state."""
    drive = {"off": "off", "battery": "battery", "as-is": "as-is"}.get(state, "on")
    return {"drive": drive, "kernel": _KERNEL_MODE[state]}
