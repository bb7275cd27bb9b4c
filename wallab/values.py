"""The figures that a table may show of a sample: their names, titles and digits."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from wallab.samples import Sample


class Value(msgspec.Struct, frozen=True):
    """A figure as a table shows it."""

    title: str
    digits: int


VALUES = {
    "tps": Value("TPS", 1),
    "cpu_percent": Value("CPU, % of one core", 0),
    "context_switches_per_tx": Value("context switches/tx", 2),
    "scan_ms": Value("scan, ms", 0),
    "scan_mb_s": Value("scan, MB/s", 1),
    "drive_read_kb": Value("kB a drive read", 0),
}


def of(sample: "Sample", name: str) -> float | None:
    """Return the sample's figure of that name; None if it has none."""
    if sample.figures is None:
        return None
    if name == "tps":
        return sample.figures.tps
    if name == "cpu_percent":
        return _cpu_percent(sample)
    return sample.values.get(name)


def _cpu_percent(sample: "Sample") -> float | None:
    """Return the processor time of server and clients, in percent of one core."""
    if sample.figures is None or sample.cpu_seconds is None or not sample.figures.transactions:
        return None
    seconds = sample.figures.transactions / sample.figures.tps
    return 100 * (sample.cpu_seconds.server + sample.cpu_seconds.client) / seconds
