"""What happens to a server under load: the power goes, or something smaller.

Each fault is a function of the trial under way. It says through `promised_until` up to which moment
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
    from wallab.powercut.trial import Trial


def power(trial: "Trial") -> None:
    """The power of both drives goes."""
    trial.power_off()
    trial.load.check(trial.promised_until)


def kill(what: str, trial: "Trial") -> None:
    """Kill a process of the server; the kernel and the drives go on.

    Whatever was promised to anybody must be kept, also what was promised meanwhile.
    """
    postmaster = psutil.Process(trial.pair.cluster.postmaster())
    children = postmaster.children()
    if what == "postmaster":
        victim = postmaster
    else:
        victim = next(child for child in children if what in " ".join(child.cmdline()))
    trial.load.check(time.monotonic_ns())
    victim.send_signal(signal.SIGKILL)
    wait_for_end(trial, children)


def wait_for_end(trial: "Trial", children: list[psutil.Process]) -> None:
    """Wait until the server has ended, and those of its processes that outlive a postmaster."""
    deadline = time.monotonic() + PATIENCE
    while trial.pair.cluster.alive():
        if time.monotonic() > deadline:
            raise LoadFailed("the server goes on, though one of its processes was killed")
        time.sleep(0.01)
    _, left = psutil.wait_procs(children, timeout=PATIENCE)
    for child in left:
        child.kill()
    psutil.wait_procs(left, timeout=PATIENCE)


def errors(how: str, trial: "Trial") -> None:
    """Requests to the WAL drive fail with EIO; a little later the power goes."""
    trial.load.check(time.monotonic_ns())
    trial.pair.wal.control.ask(f"errors {how}")
    deadline = time.monotonic() + 0.5
    while trial.pair.cluster.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    trial.power_off()


def full(trial: "Trial") -> None:
    """The WAL drive's file system is full; there is room again when the server has stopped."""
    trial.load.check(time.monotonic_ns())
    filler = trial.pair.wal.mount_point / "filler"
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
        with trial.pair.cluster.connect() as connection:
            while time.monotonic() < deadline:
                connection.execute(
                    "SELECT pg_logical_emit_message(true, 'wallab', repeat('x', 1000000))"
                )
    except psycopg.Error:
        pass
    else:
        raise LoadFailed("the WAL drive did not become full")
    trial.pair.cluster.stop(signal.SIGQUIT)
    filler.unlink()


FAULTS: dict[str, Callable[["Trial"], None]] = {
    "power": power,
    # The recovery after these is disturbed as well: Trial._disturb_recovery.
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
