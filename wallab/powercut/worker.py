"""A worker of a campaign; crew.py has its protocol."""

import contextlib
import sys

from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import serversandbox
from wallab.powercut.bed import CutBed
from wallab.powercut.crew import Ready, Refusal, Setup, Task
from wallab.powercut.cutter import Cutter


def say(message: object) -> None:
    """Write a line to the crew."""
    sys.stdout.buffer.write(jsonfile.dumps(message) + b"\n")
    sys.stdout.buffer.flush()


def work() -> None:
    """Open the bed, and cut until there is nothing more to read."""
    setup = jsonfile.loads(sys.stdin.buffer.readline(), Setup)
    confinement = serversandbox.confinement(guest=setup.guest)
    bed = CutBed(setup.servers, setup.filesystems, setup.profiles, confinement)
    with contextlib.closing(bed):
        bed.open()
        say(Ready(bed.methods))
        cutter = Cutter(bed, setup.settings, setup.seed)
        for line in sys.stdin.buffer:
            task = jsonfile.loads(line, Task)
            say(cutter.cut(task.cell, task.number, task.fault, task.trace, task.keep_trace))


def main() -> int:
    """Work; 0 when there is nothing more to do."""
    try:
        work()
    except LabError as error:
        with contextlib.suppress(OSError):
            say(Refusal(str(error)))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
