"""scripts/worker: a host of a fleet."""

import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import psutil

from wallab.command import options, outcome
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.fleet import contact as contacts
from wallab.fleet.member import UNFIT, Member
from wallab.machine import process
from wallab.paths import LAB
from wallab.progress import say

GUEST_MB = 5248
"""Of a guest of the thread's preset quick, scale 50: so much memory is left to each sample."""
_PATIENCE = 30
"""Seconds that a worker may take to hand over what it has."""
_SHORT = 5.0
_LONGEST_WAIT = 15.0

EPILOG = """\b
Examples:
  scripts/worker tcp://HOST:8786           with the key of the scheduler's host
  scripts/worker tcp://127.0.0.1:8786      of a scheduler on this machine
  scripts/worker tcp://HOST:8786 --jobs 4  four samples at a time
"""


def jobs_here() -> int:
    """Return how many samples this machine takes at a time."""
    available = psutil.virtual_memory().available >> 20
    return max(1, min(len(psutil.Process().cpu_affinity()), available // GUEST_MB))


def supervise(member: Member) -> None:
    """Have a worker's process, started again whenever it ends; MachineError if it is unfit."""
    words = jsonfile.dumps(member).decode()
    wait = 0.0
    while True:
        begun = time.monotonic()
        worker = [sys.executable, "-m", "wallab.fleet.worker", words]
        with process.started(worker, cwd=LAB, deadly=signal.SIGTERM) as child:
            code = _ended(child)
        if code == UNFIT:
            raise MachineError("this host cannot take samples of that run; the reason is above")
        wait = min(_LONGEST_WAIT, wait + 1) if time.monotonic() - begun < _SHORT else 0.0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        say(f"the worker {how}; it is started again")
        time.sleep(wait)


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Wait for the child; told to end, this tells it, so that others get what it has."""
    try:
        return child.wait()
    except KeyboardInterrupt:
        process.end(child, signal.SIGTERM, _PATIENCE)
        raise


@click.command(epilog=EPILOG)
@click.argument("address")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Samples at a time.  [default: one for each CPU that there are 5 GB of memory for]",
)
@click.option("--name", default=platform.node(), help="What this host is called in the run.")
@options.KEY
@options.INSECURE
def command(address: str, *, jobs: int | None, name: str, key: Path | None, insecure: bool) -> int:
    """Take samples for the runs of the scheduler at ADDRESS until interrupted.

    What they take is sent, or made here and compared: exit 3 with the reason where an input, such
    as the emulator, is not the same.
    """
    contacts.check_dask()
    member = Member(contacts.contact(address, key, insecure=insecure), name, jobs or jobs_here())
    say(f"{name}: {member.jobs} samples at a time for {member.contact.address}")
    supervise(member)
    return 0


if __name__ == "__main__":
    sys.exit(outcome.run(command, "worker"))
