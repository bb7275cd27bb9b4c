"""Samples that take no time, for fleets of tests and benchmarks: what workers run, and of what."""

import errno
import hashlib
import os
import signal
import threading
import time
from pathlib import Path

import distributed

from wallab.bench.schedule import Pending
from wallab.files import jsonfile
from wallab.fleet import desk, tasks
from wallab.fleet.reply import Reply
from wallab.record.measured import Measured
from wallab.record.samples import Sample
from wallab.virtual.emulator import Ended
from wallab.virtual.message import Answer


def sample_of(order: bytes) -> Sample:
    """Return what is measured of an order: it follows from that."""
    cell, number, position, control = jsonfile.loads(order, tuple[dict[str, str], int, int, bool])
    chance = int.from_bytes(hashlib.sha256(order).digest()[:4], "little") % 100
    return Sample(
        cell=cell, round=number, position=position, started="", state="measured", control=control,
        figures=Measured(100.0 + chance, 300, 0, 1.0, 1.0), phases={"measure": 3.0},
    )  # fmt: skip


def measure(setup: bytes, order: bytes, coordinator: str, alone: str) -> bytes:
    """Answer as `wallab.fleet.tasks.measure` does, at once or as the setup says.

    sleep SECONDS · fetch DIGEST FILE · full HOST, whose disk is · ended TEXT, an order with which
    ends its emulator · poison FILE TEXT, an order with which kills the worker, noted in the file.
    """
    what, *words = setup.decode().split() or ["nothing"]

    def take() -> Answer:
        if what == "sleep":
            time.sleep(float(words[0]))
        if what == "full" and str(distributed.get_worker().name).startswith(words[0]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if what == "ended" and words[0].encode() in order:
            raise Ended("the emulator ended: without a word")
        if what == "poison" and words[1].encode() in order:
            with Path(words[0]).open("a") as stream:
                stream.write("killed\n")
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "fetch" and not Path(words[1]).exists():
            desk.fetch(coordinator, words[0], Path(f"{words[1]}.{threading.get_native_id()}"))
            Path(f"{words[1]}.{threading.get_native_id()}").rename(words[1])
        return Answer(sample=sample_of(order))

    return tasks.replied(take, coordinator, alone)


def order_of(pending: Pending) -> bytes:
    """Return what is asked for, as JSON."""
    number, position, turn = pending
    return jsonfile.dumps([turn.cell, number, position, turn.control])


class Simulated:
    """A source of such samples."""

    def __init__(self, setup: str = "") -> None:
        """`setup` is as for `measure`."""
        self._setup = setup.encode()

    def task(self, pending: Pending) -> tuple[bytes, bytes]:
        """Return what is to be done, and with which turn."""
        return self._setup, order_of(pending)

    def sample(self, pending: Pending, reply: Reply) -> Sample:
        """Return what was replied."""
        assert reply.answer is not None
        assert reply.answer.sample is not None
        return reply.answer.sample
