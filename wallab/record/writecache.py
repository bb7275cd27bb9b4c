"""Write caches: the states that a cell asks for, and what is read back in each."""

from typing import Literal

WriteCache = Literal["off", "on", "on-unflushed", "battery", "battery-flushed", "as-is"]
WRITE_CACHES: tuple[WriteCache, ...] = ("off", "on", "on-unflushed", "battery")
"""The states that a drive can be switched to; “as-is” is that of a directory."""

SIMULATED: tuple[WriteCache, ...] = (*WRITE_CACHES, "battery-flushed")
"""Those that a simulated drive has besides: there the kernel flushes although it need not."""

# What the kernel is told: with “write through” it sends no flushes.
# Controllers whose battery keeps their cache tell it that, too.
_KERNEL_MODE = {
    "off": "write through",
    "on": "write back",
    "on-unflushed": "write through",
    "battery": "write through",
    "battery-flushed": "write back",
    "as-is": "as-is",
}


def as_read_back(state: WriteCache) -> dict[str, str]:
    """Return what `Drive.write_cache` reads back in that state."""
    own = {"off": "off", "battery": "battery", "battery-flushed": "battery", "as-is": "as-is"}
    drive = own.get(state, "on")
    return {"drive": drive, "kernel": _KERNEL_MODE[state]}
