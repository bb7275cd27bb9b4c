"""What counters say differs between a cell and the one that it is compared with."""

from collections.abc import Callable, Sequence

import msgspec

from wallab.record.samples import Sample
from wallab.record.values import of as value_of
from wallab.results.evidence import Evidence

LEAST = 0.05
"""What differs by less than this share is not named: rounds differ by as much."""


class Change(msgspec.Struct, frozen=True):
    """A figure of both cells, each a mean over rounds."""

    name: str
    new: float
    old: float

    @property
    def words(self) -> str:
        """The change in words, such as “-31% WAL writes/tx (0.69, not 1.00)”."""
        share = ""
        if self.old:
            ratio = self.new / self.old
            share = f"{ratio - 1:+.0%} " if ratio < 2 else f"{ratio:.1f} × "
        return f"{share}{self.name} ({self.new:.2f}, not {self.old:.2f})"


_COUNTED: dict[str, Callable[[Evidence], float | None]] = {
    "WAL writes/tx": lambda counted: counted.writes_per_transaction,
    "kB/WAL write": lambda counted: (
        None if counted.bytes_per_write is None else counted.bytes_per_write / 1024
    ),
    "WAL syncs/tx": lambda counted: counted.syncs_per_transaction,
    "drive writes/tx": lambda counted: counted.drive_writes_per_transaction,
    "drive flushes/tx": lambda counted: counted.drive_flushes_per_transaction,
    "revolutions/tx": lambda counted: counted.revolutions_per_transaction,
}

_MEASURED = {
    "full-page images/tx": "full_page_images",
    "server's CPU ms/tx": "server_cpu",
    "latency p50 ms": "p50",
    "latency p99 ms": "p99",
}
"""How it is named -> one of `wallab.record.values`."""

Side = tuple[Evidence | None, Sequence[Sample]]
"""What was counted of a cell, and its samples."""


def _mean(samples: Sequence[Sample], value: str) -> float | None:
    figures = [figure for s in samples if (figure := value_of(s, value)) is not None]
    return sum(figures) / len(figures) if figures else None


def of(new: Side, old: Side) -> tuple[Change, ...]:
    """Return the figures that both have and that differ by a share worth a word."""
    changes = []
    pairs: list[tuple[str, float | None, float | None]] = []
    if new[0] and old[0]:
        pairs += [(name, figure(new[0]), figure(old[0])) for name, figure in _COUNTED.items()]
    pairs += [
        (name, _mean(new[1], value), _mean(old[1], value)) for name, value in _MEASURED.items()
    ]
    for name, above, below in pairs:
        if above is None or below is None:
            continue
        # What is written as the same is the same.
        if abs(above - below) >= max(0.01, LEAST * max(above, below)):
            changes.append(Change(name, above, below))
    return tuple(changes)
