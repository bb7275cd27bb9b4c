"""What the clients report of one run, and how it went while it went."""

import msgspec

from wallab.record.number import Count, Figure, Rate, Seconds


class Latency(msgspec.Struct, frozen=True):
    """Percentiles of the latency of transactions, in ms, by nearest rank."""

    p50: Figure
    p90: Figure
    p95: Figure
    p99: Figure
    max: Figure


class Course(msgspec.Struct, frozen=True):
    """How a run went while it went."""

    latency_ms: Latency
    per_second: tuple[Count, ...]
    """Transactions that ended in each second since the first one began; the last, which the run
    does not fill, is left out."""
    halves_tps: tuple[Rate, Rate]
    """TPS in the first and in the second half of the time in which all clients were at work."""


class ScheduleLag(msgspec.Struct, frozen=True):
    """How late transactions began that had a time to begin at, in ms; their latency has it, too."""

    mean: Figure
    max: Figure


class Measured(msgspec.Struct, frozen=True):
    """What pgbench, or another program in its place, reports of one run."""

    tps: Rate
    """Transactions a second, without the time that connecting took."""
    transactions: Count
    failed: Count
    latency_ms: Figure
    connecting_ms: Figure
    course: Course | None = None
    """From pgbench's log of transactions, if it kept one."""
    lasted_s: Seconds | None = None
    """How long all of it took, where what is counted was only a part."""
    lag: ScheduleLag | None = None
    """Of a run at a fixed rate."""

    @property
    def seconds(self) -> float:
        """How long it took, all together."""
        if self.lasted_s is not None:
            return self.lasted_s
        return self.transactions / self.tps if self.tps else 0.0
