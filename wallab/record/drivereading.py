"""What a drive counted while a sample was measured."""

import msgspec

from wallab.record.number import Counter


class DriveReading(msgspec.Struct, frozen=True):
    """What a drive counted, by the names of drive/README.md; times in ns, by the drive's clock."""

    counters: dict[str, Counter]
    lateness: dict[str, Counter]
    """How late answers were delivered, in real time: count, p50_ns, p99_ns, max_ns.

    Empty for a drive that is not simulated.
    """
