"""The guests that run for somebody: each in a folder of its own, and all ended with their owner."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from wallab.errors import MachineError
from wallab.machine.ledger import Ledger
from wallab.virtual.emulator import Emulator

_PATIENCE = 60
"""Seconds that emulators may take to end."""


class Guests:
    """Emulators at work; may be used from several threads at a time."""

    def __init__(self) -> None:
        """MachineError where the folder of running labs is not this user's."""
        self._lock = threading.RLock()
        self._running: set[Emulator] = set()
        self._count = 0
        self._closed = False
        self._ledger: Ledger | None = Ledger.open()

    @contextlib.contextmanager
    def work(self) -> Iterator[Path]:
        """Make a folder for an emulator; it goes with it."""
        with self._lock:
            if self._ledger is None:
                raise MachineError("the bed is closed")
            self._count += 1
            work = self._ledger.folder / f"guest-{self._count}"
        work.mkdir()
        try:
            yield work
        finally:
            for file in work.iterdir():
                file.unlink()
            work.rmdir()

    @contextlib.contextmanager
    def started(self, emulated: Emulator) -> Iterator[Emulator]:
        """Own a running emulator, so that close ends it."""
        try:
            with self._lock:
                if self._closed or self._ledger is None:
                    raise MachineError("the bed is closed")
                self._running.add(emulated)
                self._ledger.add_process(emulated.process.pid)
            yield emulated
        finally:
            emulated.end()
            with self._lock:
                self._running.discard(emulated)

    def end_all(self) -> None:
        """End those that run now."""
        with self._lock:
            running = list(self._running)
        for emulated in running:
            emulated.end()

    def close(self) -> None:
        """End every guest, and start no further one; safe to call twice."""
        with self._lock:
            self._closed = True
        self.end_all()
        deadline = time.monotonic() + _PATIENCE
        while self._running and time.monotonic() < deadline:
            time.sleep(0.01)
        with self._lock:
            ledger, self._ledger = self._ledger, None
        if ledger:
            ledger.close()
