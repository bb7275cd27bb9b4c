"""How a host takes part in a fleet."""

import msgspec

from wallab.fleet.contact import Contact

UNFIT = 3
"""Exit code of a worker's process that shall not be started again."""


class Member(msgspec.Struct, frozen=True):
    """What the process of a worker is told."""

    contact: Contact
    name: str
    jobs: int
    """Samples at a time."""
