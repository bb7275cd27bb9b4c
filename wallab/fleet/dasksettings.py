"""What is asked of Dask: little, and no memory of what was done."""

import logging

import dask
from distributed.security import Security

from wallab.fleet.contact import Contact

_SETTINGS = {
    # Who dies with a sample is told to the coordinator, which counts by itself.
    "distributed.scheduler.allowed-failures": 0,
    # A task is with a worker only while that has a thread for it, so nothing has to be stolen.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.work-stealing": False,
    # What nobody can run goes back to the coordinator, which says so and asks again.
    "distributed.scheduler.no-workers-timeout": "10 minutes",
    # A host that says nothing has no sample any more.
    "distributed.scheduler.worker-ttl": "60 s",
    "distributed.comm.timeouts.tcp": "30 s",
    "distributed.comm.timeouts.connect": "20 s",
    # Its workers have no data to speak of, and are nobody's to look into.
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # Nobody is told over HTTP how a worker is.
    "distributed.worker.http.routes": [],
    "distributed.admin.event-loop": "asyncio",
}


def apply() -> None:
    """Set this process up; what Dask says to nobody in particular is not said."""
    dask.config.set(_SETTINGS)
    for name in ("distributed", "distributed.client", "distributed.scheduler", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def security(contact: Contact) -> Security | None:
    """Return what encrypts and proves that one belongs to the fleet; None: nothing does."""
    if contact.key is None:
        return None
    key = str(contact.key)
    return Security(
        require_encryption=True,
        tls_ca_file=key,
        tls_client_cert=key,
        tls_scheduler_cert=key,
        tls_worker_cert=key,
    )
