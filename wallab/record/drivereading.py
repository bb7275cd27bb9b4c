"""What a drive counted while a sample was measured."""

import msgspec


class DriveReading(msgspec.Struct, frozen=True):
    """What a drive counted, by the names of drive/README.md; times in ns, by the drive's clock."""

    counters: dict[str, int]
    lateness: dict[str, int]
    """How late answers were delivered, in real time: count, p50_ns, p99_ns, max_ns.

    Empty for a drive that is not simulated.
    """
