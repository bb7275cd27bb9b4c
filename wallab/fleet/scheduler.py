"""Dask's scheduler, as a fleet takes it."""

import asyncio
import importlib.util
import resource
import signal
import tempfile

from distributed import Scheduler

from wallab.fleet import contact as contacts
from wallab.fleet import dasksettings
from wallab.fleet.contact import Contact
from wallab.progress import say

_DASHBOARD = "127.0.0.1:8787"


def run(contact: Contact) -> None:
    """Serve until the process is told to end; OSError where the address is in use."""
    dasksettings.apply()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))  # some for each worker
    with tempfile.TemporaryDirectory(prefix="wallab-scheduler-") as scratch:
        asyncio.run(_serve(contact, scratch))


async def _serve(contact: Contact, scratch: str) -> None:
    drawn = importlib.util.find_spec("bokeh") is not None
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    async with Scheduler(
        host=contact.address,
        security=dasksettings.security(contact),
        dashboard=drawn,
        dashboard_address=_DASHBOARD if drawn else "127.0.0.1:0",
        local_directory=scratch,
    ) as scheduler:
        address = scheduler.address.partition("://")[2].rpartition(":")[0].strip("[]")
        beyond = "" if contact.key or contacts.is_loopback(address) else " --insecure"
        say(f"scheduler at {scheduler.address}; on each host: ")
        say(f"  scripts/worker {scheduler.address}{beyond}")
        await ended.wait()
