"""Looks at gauges, again and again, while a sample is measured."""

import time

from wallab.bench.gauges import LIMIT, READ
from wallab.bench.stage import Stage
from wallab.record.timeseries import TimeSeries

LOOK_S = 0.5
"""Seconds between two looks."""


class Timeline:
    """Looks at gauges of a stage, from now on."""

    def __init__(self, stage: Stage, names: tuple[str, ...]) -> None:
        """`names` are of `wallab.record.gauges`; a workload itself tells what is not in READ."""
        self._stage = stage
        self._read = {name: READ[name] for name in names if name in READ}
        self._limits = {name: LIMIT[name](stage) if name in LIMIT else None for name in self._read}
        self._looks: dict[str, list[tuple[float, float]]] = {name: [] for name in self._read}
        self._begun = time.monotonic()
        self.look()

    def look(self) -> None:
        """Read every gauge that the stage has."""
        for name, read in self._read.items():
            if (figure := read(self._stage)) is not None:
                second = time.monotonic() - self._begun
                self._looks[name].append((round(second, 2), round(figure, 2)))

    def series(self) -> dict[str, TimeSeries]:
        """Return what was seen, without the gauges that the stage does not have."""
        return {
            name: TimeSeries(
                tuple(second for second, _ in looks),
                tuple(figure for _, figure in looks),
                self._limits[name],
            )
            for name, looks in self._looks.items()
            if looks
        }
