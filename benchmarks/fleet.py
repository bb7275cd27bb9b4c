#!/usr/bin/env python3
"""What a fleet's coordinator and scheduler can do: many workers whose samples take no time.

usage: .venv/bin/python -m benchmarks.fleet [--workers N] [--samples N] [--processes N]

All on this machine: the scheduler, processes that are so many workers each, and this, which is the
coordinator of a run in a temporary folder. Told are samples a second, bytes sent for each, and the
memory of coordinator and scheduler as the run goes on.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from distributed import Worker

from benchmarks import fleetrun, fleetsamples
from wallab import paths
from wallab.bench.run import turns_of
from wallab.bench.schedule import Schedule
from wallab.fleet import contact, dasksettings
from wallab.fleet.desk import Desk
from wallab.fleet.engine import Fleet
from wallab.record.samples import SAMPLES, SampleFile

_TOLD = 10
"""Lines about memory."""
_PATIENCE = 600


async def be_workers(address: str, count: int) -> None:
    """Be so many workers of one thread each until killed."""
    dasksettings.apply()
    with tempfile.TemporaryDirectory() as scratch:
        workers = [
            Worker(
                address, nthreads=1, name=f"{os.getpid()}.{i}-0", memory_limit=0,
                dashboard=False, local_directory=scratch,
            )
            for i in range(count)
        ]  # fmt: skip
        await asyncio.gather(*workers)
        await asyncio.gather(*(worker.finished() for worker in workers))


@contextlib.contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start Python with these arguments; kill it at the end."""
    child = subprocess.Popen([sys.executable, *words], cwd=paths.LAB, stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def megabytes(pid: int) -> int:
    """Return a process's memory."""
    return int(psutil.Process(pid).memory_info().rss) >> 20


def measure(fleet: Fleet, folder: Path, count: int, scheduler: int) -> None:
    """Take so many samples as a run does, and tell what that took."""
    plan = fleetrun.plan(rounds=-(-count // 11), precision=None)
    schedule = Schedule(turns_of(plan.cells, plan.preset.control), plan.preset, plan.seed)
    file = SampleFile(folder / SAMPLES)
    begun = time.monotonic()
    before = time.process_time()
    done = 0
    for _ in schedule.pending():
        sample = fleet.sample(schedule.pending)
        file.append(sample)
        schedule.add(sample)
        done += 1
        if done % (count // _TOLD) == 0:
            seconds = time.monotonic() - begun
            print(
                f"{done} samples: {done / seconds:.0f} a second; MB: coordinator "
                f"{megabytes(psutil.Process().pid)}, scheduler {megabytes(scheduler)}",
                flush=True,
            )
    cpu = 1000 * (time.process_time() - before) / done
    print(f"{cpu:.1f} ms of the coordinator's processor a sample, {len(fleet.hosts)} hosts")


def main() -> None:
    """Start a fleet and measure it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=4, help="that the workers are in")
    parser.add_argument("--port", type=int, default=28786)
    parser.add_argument("--be-workers", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    there = contact.contact(f"127.0.0.1:{asked.port}", None, insecure=False)
    if asked.be_workers:
        asyncio.run(be_workers(there.address, asked.be_workers))
        return
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(
            started("-m", "wallab.command.scheduler", f"127.0.0.1:{asked.port}")
        )
        for _ in range(asked.processes):
            share = str(asked.workers // asked.processes)
            words = ("-m", "benchmarks.fleet", "--port", str(asked.port), "--be-workers", share)
            stack.enter_context(started(*words))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fleet = Fleet(there, fleetsamples.Simulated(), Desk({}), fleetsamples.measure)
        begun = time.monotonic()
        with fleet:
            expected = asked.workers // asked.processes * asked.processes
            while fleet.threads() < expected:
                if time.monotonic() - begun > _PATIENCE:
                    sys.exit(f"only {fleet.threads()} workers came")
                time.sleep(1)
            print(f"{expected} workers there after {time.monotonic() - begun:.0f} s", flush=True)
            measure(fleet, folder, asked.samples, scheduler.pid)


if __name__ == "__main__":
    main()
