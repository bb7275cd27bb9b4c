"""The process of scripts/worker that takes samples, one thread for each; it is started again."""

import asyncio
import os
import signal
import sys
import tempfile
import threading

from distributed import Worker

from wallab.files import jsonfile
from wallab.fleet import dasksettings, tasks
from wallab.fleet.member import UNFIT, Member
from wallab.machine import ledger

_PATIENCE = 25
"""Seconds that leaving may take, less than scripts/worker waits."""


async def _work(member: Member, scratch: str) -> int:
    worker = Worker(
        member.contact.address,
        nthreads=member.jobs,
        name=f"{member.name}-{os.getpid()}",
        security=dasksettings.security(member.contact),
        memory_limit=0,
        local_directory=scratch,
        dashboard=False,
        dashboard_address="127.0.0.1:0",
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, _end, worker)
    async with worker:
        print("worker: in the fleet", file=sys.stderr, flush=True)
        await worker.finished()
    return UNFIT if tasks.unfit() else 0


def _end(worker: Worker) -> None:
    """Leave the fleet; where nobody answers any more, just end."""
    limit = threading.Timer(_PATIENCE, os._exit, [1])
    limit.daemon = True
    limit.start()
    tasks.leave(worker)


def main() -> int:
    """Take samples until the scheduler is lost, or this is told to end."""
    member = jsonfile.loads(sys.argv[1], Member)
    dasksettings.apply()
    ledger.clear_dead()
    with tempfile.TemporaryDirectory(prefix="wallab-worker-") as scratch:
        try:
            return asyncio.run(_work(member, scratch))
        finally:
            tasks.close()


if __name__ == "__main__":
    code = main()
    # Threads that still wait for what was ended are waited for by nobody.
    sys.stderr.flush()
    os._exit(code)
