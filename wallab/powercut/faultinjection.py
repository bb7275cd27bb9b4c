"""What happens to a server under load: the power goes, or something smaller.

Each fault is a function of a trial's situation. It says through `promised_until` up to which moment
promises count, and leaves a server that is dead or about to be.
"""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import psutil
import psycopg

from wallab.powercut.bed import DrivePair
from wallab.powercut.load import PATIENCE, Load, LoadFailed


class Situation(Protocol):
    """What a fault meets: a server under load on its drives."""

    load: Load
    promised_until: int
    """Up to this moment, in ns of the monotonic clock, promises count."""

    @property
    def pair(self) -> DrivePair:
        """The drives, and the cluster on them."""

    def power_off(self) -> None:
        """Cut the power of both drives, at one moment; sets `promised_until` to it."""


def power(situation: Situation) -> None:
    """The power of both drives goes."""
    situation.power_off()
    situation.load.check(situation.promised_until)


def kill(what: str, situation: Situation) -> None:
    """Kill a process of the server; the kernel and the drives go on.

    Whatever was promised to anybody must be kept, also what was promised meanwhile.
    """
    postmaster = psutil.Process(situation.pair.cluster.postmaster())
    children = postmaster.children()
    if what == "postmaster":
        victim = postmaster
    else:
        victim = next(child for child in children if what in " ".join(child.cmdline()))
    situation.load.check(time.monotonic_ns())
    victim.send_signal(signal.SIGKILL)
    wait_for_end(situation, children)


def wait_for_end(situation: Situation, children: list[psutil.Process]) -> None:
    """Wait until the server has ended, and those of its processes that outlive a postmaster."""
    deadline = time.monotonic() + PATIENCE
    while situation.pair.cluster.alive():
        if time.monotonic() > deadline:
            raise LoadFailed("the server goes on, though one of its processes was killed")
        time.sleep(0.01)
    _, left = psutil.wait_procs(children, timeout=PATIENCE)
    for child in left:
        child.kill()
    psutil.wait_procs(left, timeout=PATIENCE)


def errors(how: str, situation: Situation) -> None:
    """Requests to the WAL drive fail with EIO; a little later the power goes."""
    situation.load.check(time.monotonic_ns())
    situation.pair.wal.control.ask(f"errors {how}")
    deadline = time.monotonic() + 0.5
    while situation.pair.cluster.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    situation.power_off()


def full(situation: Situation) -> None:
    """The WAL drive's file system is full; there is room again when the server has stopped."""
    situation.load.check(time.monotonic_ns())
    filler = situation.pair.wal.mount_point / "filler"
    try:
        # The drive is the server's user's: nothing that is there already, and no link, is filled.
        descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except OSError as error:
        raise LoadFailed(f"{filler}: {error.strerror}") from None
    try:
        for step in (1 << 20, 4096):
            try:
                while True:
                    os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, step)
            except OSError:  # no room for another step
                continue
    finally:
        os.close(descriptor)
    deadline = time.monotonic() + PATIENCE
    try:
        with situation.pair.cluster.connect() as connection:
            while time.monotonic() < deadline:
                connection.execute(
                    "SELECT pg_logical_emit_message(true, 'wallab', repeat('x', 1000000))"
                )
    except psycopg.Error:
        pass
    else:
        raise LoadFailed("the WAL drive did not become full")
    situation.pair.cluster.stop(signal.SIGQUIT)
    filler.unlink()


FAULTS: dict[str, Callable[[Situation], None]] = {
    "power": power,
    # The recovery after these is disturbed as well: wallab.powercut.trial.
    "power-twice": power,
    "kill-recovery": power,
    "kill-postmaster": partial(kill, "postmaster"),
    "kill-walwriter": partial(kill, "walwriter"),
    "kill-checkpointer": partial(kill, "checkpointer"),
    "kill-backend": partial(kill, "[local]"),
    "eio-once": partial(errors, "all times=1"),
    "eio-while": partial(errors, "all for=200"),
    "eio-for-ever": partial(errors, "all"),
    "wal-full": full,
}
"""Fault -> what it does; the name is scripts/power-cut's --fault."""
