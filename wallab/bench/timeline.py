"""Figures over time: what gauges showed, again and again, while a sample was measured."""

import time
from typing import TYPE_CHECKING

import msgspec

from wallab.bench.gauges import GAUGES
from wallab.record.number import Figure, Seconds

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed

LOOK_S = 0.5
"""Seconds between two looks."""

FULL = 0.99
"""What reaches this share of its limit counts as full."""


class Series(msgspec.Struct, frozen=True):
    """A figure over time."""

    seconds: tuple[Seconds, ...]
    """Since the measuring began."""
    figures: tuple[Figure, ...]
    """In the gauge's unit; as many as seconds."""
    limit: Figure | None = None
    """The most that there could be, if that is known."""

    def __post_init__(self) -> None:
        if not self.seconds or len(self.seconds) != len(self.figures):
            raise ValueError("expected as many `figures` as `seconds`, and at least one")

    @property
    def full_after(self) -> float | None:
        """The second in which the limit was reached; None if it was not."""
        if self.limit is None:
            return None
        full = FULL * self.limit
        looks = zip(self.seconds, self.figures, strict=True)
        return next((second for second, figure in looks if figure >= full), None)


class Timeline:
    """Looks at gauges of a test bed, from now on."""

    def __init__(self, bed: "TestBed", names: tuple[str, ...]) -> None:
        """`names` are of `bench.gauges`; those that only a workload can tell are left to it."""
        self._bed = bed
        self._read = {name: read for name in names if (read := GAUGES[name].read)}
        self._limits = {name: GAUGES[name].limit(bed) for name in self._read}
        self._looks: dict[str, list[tuple[float, float]]] = {name: [] for name in self._read}
        self._begun = time.monotonic()
        self.look()

    def look(self) -> None:
        """Read every gauge that the test bed has."""
        for name, read in self._read.items():
            if (figure := read(self._bed)) is not None:
                second = time.monotonic() - self._begun
                self._looks[name].append((round(second, 2), round(figure, 2)))

    def series(self) -> dict[str, Series]:
        """Return what was seen, without the gauges that the test bed does not have."""
        return {
            name: Series(
                tuple(second for second, _ in looks),
                tuple(figure for _, figure in looks),
                self._limits[name],
            )
            for name, looks in self._looks.items()
            if looks
        }
