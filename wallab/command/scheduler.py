"""scripts/scheduler: where the workers and the runs of a fleet find each other."""

import sys
from pathlib import Path

import click

from wallab.command import options, outcome
from wallab.fleet import contact as contacts
from wallab.progress import say

EPILOG = """\b
Examples:
  scripts/scheduler                       for all hosts that have its key
  scripts/scheduler tcp://127.0.0.1:8786  for this machine alone
  scripts/scheduler --insecure            where nobody else reaches this machine
"""


@click.command(epilog=EPILOG)
@click.argument("address", default=f"0.0.0.0:{contacts.PORT}")
@options.KEY
@options.INSECURE
def command(address: str, *, key: Path | None, insecure: bool) -> int:
    """Be the scheduler of a fleet, on ADDRESS (default: all of this machine's).

    Whoever can reach it can run code on every host of the fleet: beyond this machine it takes a
    key, which is made when there is none, and which each host needs a copy of.
    """
    contacts.check_dask()
    contact = contacts.contact(address, key, insecure=insecure, make=True)
    if contact.key:
        say(f"the fleet's key, for {contacts.default_key()} of each host: {contact.key}")
    # Wrong usage is told without Dask.
    from wallab.fleet import scheduler  # noqa: PLC0415

    scheduler.run(contact)
    return 0


if __name__ == "__main__":
    sys.exit(outcome.run(command, "scheduler"))
