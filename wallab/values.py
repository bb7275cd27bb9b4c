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
    return sample.values.get(name)
