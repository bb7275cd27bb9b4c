"""Samples beside each other on a worker, and one alone, of which others died."""

import contextlib
import threading
from collections.abc import Iterator

from distributed import Worker
from distributed.core import Status


class Busy(Exception):
    """A sample cannot be taken by this worker now, but by another, or later."""


class Company:
    """Who takes samples in this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._others = 0
        self._alone = False

    @contextlib.contextmanager
    def place(self, worker: Worker, *, alone: bool) -> Iterator[None]:
        """Take part; alone, once the others are done, and with nobody let in: Busy, if one is."""
        with self._changed:
            if self._alone:
                raise Busy
            if alone:
                self._alone = True
                _set(worker, Status.paused)
                self._changed.wait_for(lambda: not self._others)
            else:
                self._others += 1
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._alone = False
                    _set(worker, Status.running)
                else:
                    self._others -= 1
                    self._changed.notify_all()


def _set(worker: Worker, status: Status) -> None:
    """Let Dask give the worker nothing more, or again; what leaves the fleet goes on to."""

    def change() -> None:
        if worker.status in {Status.paused, Status.running}:
            worker.status = status

    worker.loop.add_callback(change)


COMPANY = Company()
"""Of this process, which is one worker's."""
