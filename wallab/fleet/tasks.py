"""What a worker does, by name: a coordinator sends no code, and no data but bytes.

Dask would take code from anybody who reaches its scheduler, which is what keys are for.
"""

import asyncio
import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable

import distributed
import msgspec
from distributed import Worker
from distributed.comm.core import CommClosedError

from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.fleet import desk
from wallab.fleet.company import COMPANY
from wallab.fleet.reply import Reply
from wallab.virtual.emulator import Ended
from wallab.virtual.host import Host
from wallab.virtual.message import Answer, Order
from wallab.virtual.setup import Setup
from wallab.virtual.template import GuestFailed

_REPLYING_S = 2.0
"""Seconds that a worker which leaves has for its reply to be fetched."""
_RETIRING_S = 10

_lock = threading.Lock()
_leaving = threading.Event()


@functools.cache
def _host() -> Host:
    return Host()


def unfit() -> bool:
    """Whether this process has said that it cannot take samples."""
    return _leaving.is_set()


def close() -> None:
    """End what this process has begun."""
    with _lock:
        if _host.cache_info().currsize:
            _host().close()


def measure(setup: bytes, order: bytes, coordinator: str, alone: str) -> bytes:
    """Take a sample, alone if that names the task, else beside others; return the reply as JSON."""

    def take() -> Answer:
        with _lock:
            host = _host()
        return host.answer(
            jsonfile.loads(setup, Setup),
            jsonfile.loads(order, Order),
            functools.partial(desk.fetch, coordinator),
        )

    return replied(take, coordinator, alone)


def replied(take: Callable[[], Answer], coordinator: str, alone: str) -> bytes:
    """Return how taking a sample went; a host that cannot do it leaves the fleet.

    The coordinator hears when one that is to be alone is so: what kills the worker then is that.
    Busy, CommClosedError or TimeoutError where it is to be tried again.
    """
    begun = time.monotonic()
    worker = distributed.get_worker()
    while _leaving.is_set():
        time.sleep(1)  # it ends, and its tasks go to others
    name = str(worker.name).rpartition("-")[0]  # without its process
    try:
        with COMPANY.place(worker, alone=bool(alone)):
            if alone:
                desk.note(coordinator, alone)
            reply = Reply(host=name, state="answered", answer=take())
    except GuestFailed as error:
        reply = Reply(host=name, state="failed", reason=str(error))
    except Ended as error:
        reply = Reply(host=name, state="died", reason=str(error))
    except (CommClosedError, TimeoutError):
        raise  # the network's, not this host's
    except (MachineError, OSError, msgspec.MsgspecError) as error:
        reply = Reply(host=name, state="unfit", reason=str(error))
        _leaving.set()
        print(f"worker: leaves the fleet: {error}", file=sys.stderr, flush=True)
        leave(worker, _REPLYING_S)
    seconds = round(time.monotonic() - begun, 2)
    return jsonfile.dumps(msgspec.structs.replace(reply, seconds=seconds))


def leave(worker: Worker, wait: float = 0.0) -> None:
    """Let the worker take no further task and end, after so many seconds.

    What it has goes to others, and counts as nobody's failure.
    """

    async def end() -> None:
        await asyncio.sleep(wait)
        # What is closed already tells by a RuntimeError.
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            retired = worker.scheduler.retire_workers(
                workers=[worker.address], close_workers=False, remove=True, stimulus_id="leave"
            )
            await asyncio.wait_for(retired, _RETIRING_S)
        await worker.close(executor_wait=False)

    worker.loop.add_callback(end)
