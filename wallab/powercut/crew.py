"""Workers: processes that cut, each with drives and servers of its own.

A worker reads a Setup and then Tasks from its standard input, and writes Ready and then a record
for each task to its standard output, a line of JSON each. It ends with its input.
"""

import contextlib
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.machine import process
from wallab.powercut.cutcell import CutCell
from wallab.powercut.cutrecord import CutRecord

Shape = TypeVar("Shape")

PATIENCE = 900.0
"""Seconds within which a worker answers; a cut takes a few."""

CLOSING = 120.0
"""Seconds that a worker may take to finish its cut and to clear up."""


class Setup(msgspec.Struct, frozen=True):
    """What a worker needs to know before its first task."""

    servers: dict[str, Path]
    """Variant -> its installed tree."""
    filesystems: list[str]
    profiles: dict[str, str]
    settings: dict[str, str]
    seed: int
    guest: bool
    """Whether the code of a server is a stranger's."""


class Ready(msgspec.Struct, frozen=True):
    """A worker has its drives."""

    methods: dict[str, tuple[str, ...]]
    """Variant -> its values of wal_sync_method."""


class Task(msgspec.Struct, frozen=True):
    """A cut to make."""

    cell: CutCell
    number: int
    fault: str
    trace: Path | None = None
    """Where the WAL drive's trace goes; none is made without."""
    keep_trace: bool = True
    """Also if nothing was lost."""


class Refusal(msgspec.Struct, frozen=True):
    """A worker cannot go on."""

    refused: str


class Crew:
    """Some workers, and the tasks that they are at."""

    def __init__(self, count: int) -> None:
        self._workers: list[subprocess.Popen[bytes]] = []
        self._count = count

    def open(self, setup: Setup) -> Ready:
        """Start the workers, and wait until all have their drives."""
        try:
            for _ in range(self._count):
                worker = process.spawn(
                    [sys.executable, "-m", "wallab.powercut.worker"],
                    deadly=signal.SIGKILL,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
                self._workers.append(worker)
                _send(worker, setup)
            answers = [_receive(worker, Ready) for worker in self._workers]
            return answers[0]
        except BaseException:
            self.close()
            raise

    def run(
        self, next_task: Callable[[], Task | None], finished: Callable[[CutRecord], None]
    ) -> None:
        """Give each idle worker the next task, and report what comes back, until none is left."""
        idle = list(self._workers)
        with selectors.DefaultSelector() as selector:
            while True:
                while idle and (task := next_task()):
                    worker = idle.pop()
                    _send(worker, task)
                    assert worker.stdout is not None
                    selector.register(
                        worker.stdout, selectors.EVENT_READ, (worker, time.monotonic())
                    )
                if not selector.get_map():
                    return
                ready = selector.select(5)
                for key, _ in ready:
                    worker, _ = key.data
                    selector.unregister(key.fileobj)
                    record = _receive(worker, CutRecord)
                    idle.append(worker)
                    finished(record)
                now = time.monotonic()
                if any(now - key.data[1] > PATIENCE for key in selector.get_map().values()):
                    raise MachineError(f"a power cut is not done within {PATIENCE:.0f} s")

    def close(self) -> None:
        """End the workers, which take their drives away; safe to call twice.

        Each finishes its cut first: an interrupt in its midst could leave a server behind.
        """
        for worker in self._workers:
            if worker.stdin is not None:
                with contextlib.suppress(OSError):
                    worker.stdin.close()
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(CLOSING)
            process.end_group(worker)
        self._workers.clear()


def _send(worker: subprocess.Popen[bytes], message: Setup | Task) -> None:
    assert worker.stdin is not None
    try:
        worker.stdin.write(jsonfile.dumps(message) + b"\n")
        worker.stdin.flush()
    except OSError as error:
        raise MachineError(f"a worker is gone: {error.strerror}; its words are above") from None


def _receive(worker: subprocess.Popen[bytes], shape: type[Shape]) -> Shape:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise MachineError("a worker is gone; its last words are above")
    with contextlib.suppress(msgspec.ValidationError):
        raise MachineError(jsonfile.loads(line, Refusal).refused)
    return jsonfile.loads(line, shape)
