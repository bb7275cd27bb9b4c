#!/usr/bin/env python3
"""TPS of a run in virtual time by that of the same cells in real time.

usage: .venv/bin/python benchmarks/beside_real.py VIRTUAL REAL [--within PERCENT]

A line for each cell that both runs measured: the mean TPS of its rounds in either, their ratio, and
how much of a processor the server's processes took while it was measured. Where that is half of one
or more in either run, or the drive has its cache on, the cell is not judged: it waits for more than
the drive. With --within the exit code is 1 if a cell that is judged differs by more.
"""

import argparse
import sys
from collections.abc import Sequence
from statistics import fmean

import msgspec

from wallab.errors import LabError
from wallab.record import manifest
from wallab.record.experiment import Cell
from wallab.record.samples import SAMPLES, Sample, SampleFile

BUSY = 0.5
"""Of a processor."""


class Figure(msgspec.Struct, frozen=True):
    """What the rounds of a cell gave."""

    tps: float
    processor: float
    """Seconds of the server's processes in a second."""


class Pair(msgspec.Struct, frozen=True):
    """A cell in both runs."""

    cell: Cell
    virtual: Figure
    real: Figure

    @property
    def ratio(self) -> float:
        """TPS in virtual time by those in real time."""
        return self.virtual.tps / self.real.tps

    @property
    def judged(self) -> bool:
        """Whether the cell waits for its drive in both."""
        idle = max(self.virtual.processor, self.real.processor) < BUSY
        return idle and self.cell.get("write_cache") == "off"


def figures(samples: Sequence[Sample]) -> dict[tuple[tuple[str, str], ...], Figure]:
    """Return the cells that were measured, controls left out, and what they gave."""
    rounds: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for sample in samples:
        if sample.figures and sample.cpu_seconds and not sample.control:
            share = sample.cpu_seconds.server / sample.phases["measure"]
            rounds.setdefault(tuple(sample.cell.items()), []).append((sample.figures.tps, share))
    return {
        cell: Figure(*(fmean(column) for column in zip(*measured, strict=True)))
        for cell, measured in rounds.items()
    }


def pairs(virtual: Sequence[Sample], real: Sequence[Sample]) -> list[Pair]:
    """Return the cells that both measured, in the order of the first."""
    known = figures(real)
    return [
        Pair(dict(cell), figure, known[cell])
        for cell, figure in figures(virtual).items()
        if cell in known and known[cell].tps
    ]


def text(cells: Sequence[Pair]) -> str:
    """Return the table; cells that are judged first."""
    names = {id(pair): ", ".join(pair.cell.values()) for pair in cells}
    width = max(map(len, names.values()), default=0)
    head = f"{'virtual':>9}{'real':>9}{'ratio':>7}{'processor':>17}"
    units = f"{'TPS':>9}{'TPS':>9}{'':7}{'virtual':>10}{'real':>7}"
    lines = [" " * width + head, " " * width + units]
    for pair in sorted(cells, key=lambda pair: not pair.judged):
        virtual, real = pair.virtual, pair.real
        lines.append(
            f"{names[id(pair)]:{width}}{virtual.tps:9.1f}{real.tps:9.1f}{pair.ratio:7.3f}"
            f"{virtual.processor:10.2f}{real.processor:7.2f}"
            + ("" if pair.judged else "  not judged")
        )
    return "\n".join(lines)


def main() -> int:
    """Read the command line and the runs, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("virtual", help="a folder of results, or latest")
    parser.add_argument("real", help="another")
    parser.add_argument("--within", type=float, metavar="PERCENT")
    arguments = parser.parse_args()
    try:
        folders = [manifest.find(name) for name in (arguments.virtual, arguments.real)]
        for folder, is_virtual in zip(folders, (True, False), strict=True):
            if (manifest.load(folder).virtual is not None) != is_virtual:
                kind = "virtual" if is_virtual else "real"
                raise LabError(f"{folder}: expected a run in {kind} time")
        cells = pairs(*(SampleFile(folder / SAMPLES).read() for folder in folders))
        if not cells:
            raise LabError("the two runs have no cell in common that both measured")
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(text(cells))
    judged = [pair.ratio for pair in cells if pair.judged]
    if judged:
        print(f"{len(judged)} cells are judged: {min(judged):.3f} to {max(judged):.3f}")
    else:
        print("no cell is judged")
    if arguments.within is None:
        return 0
    least, most = 1 - arguments.within / 100, 1 + arguments.within / 100
    return 0 if judged and all(least <= ratio <= most for ratio in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
