"""How often the kernel switches between a server's processes."""

import contextlib
import re
import time
from pathlib import Path

import psutil


def _of(pid: int) -> int:
    """Return the context switches of a process so far; OSError if it has gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(number) for number in re.findall(r"ctxt_switches:\s+(\d+)", status))


class ContextSwitches:
    """Looks at a server's processes, again and again while its clients run."""

    def __init__(self, postmaster: int) -> None:
        self._server = psutil.Process(postmaster)
        self._looks: list[tuple[float, dict[int, int]]] = []

    def look(self) -> None:
        """Count the context switches of every process of the server."""
        counts: dict[int, int] = {}
        with contextlib.suppress(psutil.Error):
            for child in self._server.children():
                with contextlib.suppress(OSError):
                    counts[child.pid] = _of(child.pid)
        self._looks.append((time.monotonic(), counts))

    def per_second(self) -> float | None:
        """Return the switches a second, of the processes that lived from one look to the next."""
        seconds = 0.0
        switches = 0
        for (begun, before), (ended, after) in zip(self._looks, self._looks[1:], strict=False):
            seconds += ended - begun
            switches += sum(after[pid] - before[pid] for pid in before.keys() & after.keys())
        return switches / seconds if seconds else None
