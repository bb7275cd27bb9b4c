"""What happens to a server under load: the power goes, or something smaller.

Each fault is a function of the cut under way. It says through `promised_until` up to which moment
promises count, and leaves a server that is dead or about to be.
"""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import psutil
import psycopg

from wallab.powercut.load import PATIENCE, LoadFailed

if TYPE_CHECKING:
    from wallab.powercut.cut import Cut


def power(cut: "Cut") -> None:
    """The power of both drives goes."""
    cut.power_off()
    cut.load.check(cut.promised_until)


def kill(what: str, cut: "Cut") -> None:
    """Kill a process of the server; the kernel and the drives go on.

    Whatever was promised to anybody must be kept, also what was promised meanwhile.
    """
    postmaster = psutil.Process(cut.pair.cluster.postmaster())
    children = postmaster.children()
    if what == "postmaster":
        victim = postmaster
    else:
        victim = next(one for one in children if what in " ".join(one.cmdline()))
    cut.load.check(time.monotonic_ns())
    victim.send_signal(signal.SIGKILL)
    wait_for_end(cut, children)


def wait_for_end(cut: "Cut", children: list[psutil.Process]) -> None:
    """Wait until the server has ended, and those of its processes that outlive a postmaster."""
    deadline = time.monotonic() + PATIENCE
    while cut.pair.cluster.alive():
        if time.monotonic() > deadline:
            raise LoadFailed("the server goes on, though one of its processes was killed")
        time.sleep(0.01)
    _, left = psutil.wait_procs(children, timeout=PATIENCE)
    for one in left:
        one.kill()
    psutil.wait_procs(left, timeout=PATIENCE)


def errors(how: str, cut: "Cut") -> None:
    """Requests to the WAL drive fail with EIO; a little later the power goes."""
    cut.load.check(time.monotonic_ns())
    cut.pair.wal.control.ask(f"errors {how}")
    deadline = time.monotonic() + 0.5
    while cut.pair.cluster.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    cut.power_off()


def full(cut: "Cut") -> None:
    """The WAL drive's file system is full; there is room again when the server has stopped."""
    cut.load.check(time.monotonic_ns())
    filler = cut.pair.wal.mount_point / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
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
        with cut.pair.cluster.connect() as connection:
            while time.monotonic() < deadline:
                connection.execute(
                    "SELECT pg_logical_emit_message(true, 'wallab', repeat('x', 1000000))"
                )
    except psycopg.Error:
        pass
    else:
        raise LoadFailed("the WAL drive did not become full")
    cut.pair.cluster.stop(signal.SIGQUIT)
    filler.unlink()


FAULTS: dict[str, Callable[["Cut"], None]] = {
    "power": power,
    # The recovery after these is disturbed as well: Cut.disturb_recovery.
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
