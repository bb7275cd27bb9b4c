#!/usr/bin/env python3
"""How late the simulated drives were in runs, side by side: a virtual one beside real ones.

usage: .venv/bin/python benchmarks/lateness.py RUN... [--limit MICROSECONDS]

A line for each cell and drive, the worst sample of the cell for each run: half of its requests were
answered so late at most, 99% of them, and all, in microseconds. With --limit the exit code is 1 if
the 99th percentile of any sample is above it.
"""

import argparse
import sys
from collections.abc import Sequence

from wallab.errors import LabError
from wallab.record import manifest
from wallab.record.manifest import Manifest
from wallab.record.samples import SAMPLES, Sample, SampleFile

_SHOWN = ("p50_ns", "p99_ns", "max_ns")


def cells(samples: Sequence[Sample]) -> dict[tuple[str, ...], list[dict[str, int]]]:
    """Return what the drives say of their lateness, by cell and the drive's name."""
    lateness: dict[tuple[str, ...], list[dict[str, int]]] = {}
    for sample in samples:
        for name, drive in sample.drive.items():
            if drive.lateness.get("count"):
                lateness.setdefault((*sample.cell.values(), name), []).append(drive.lateness)
    return lateness


def worst(samples: Sequence[dict[str, int]]) -> tuple[int, ...]:
    """Return the quantiles (ns) of the sample with the highest 99th percentile."""
    latest = max(samples, key=lambda sample: sample["p99_ns"])
    return tuple(latest[name] for name in _SHOWN)


def text(runs: Sequence[tuple[Manifest, Sequence[Sample]]]) -> str:
    """Return the table, its columns in the order of the runs."""
    by_run = [cells(samples) for _, samples in runs]
    rows = list(dict.fromkeys(row for run in by_run for row in run))
    names = {row: ", ".join(row) for row in rows}
    width = max(map(len, names.values()), default=0)
    heads = [plan.experiment.machine for plan, _ in runs]
    lines = [" " * width + "".join(f"  {head:^24}" for head in heads)]
    lines.append(" " * width + "".join(f"  {'p50':>8}{'p99':>8}{'max':>8}" for _ in runs))
    for row in rows:
        line = f"{names[row]:{width}}"
        for run in by_run:
            figures = worst(run[row]) if row in run else ()
            line += "  " + "".join(f"{ns / 1e3:8.1f}" for ns in figures).rjust(24)
        lines.append(line.rstrip())
    return "\n".join(lines)


def late(samples: Sequence[Sample], limit: float) -> int:
    """Count the samples with a drive whose 99th percentile is above so many microseconds."""
    return sum(
        any(drive.lateness.get("p99_ns", 0) > limit * 1e3 for drive in sample.drive.values())
        for sample in samples
    )


def main() -> int:
    """Read the command line and the runs, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="+", help="a folder of results, or latest")
    parser.add_argument("--limit", type=float, metavar="MICROSECONDS")
    arguments = parser.parse_args()
    try:
        folders = [manifest.find(name) for name in arguments.run]
        runs = [(manifest.load(run), SampleFile(run / SAMPLES).read()) for run in folders]
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(text(runs))
    if arguments.limit is None:
        return 0
    above = sum(late(samples, arguments.limit) for _, samples in runs)
    print(f"{above} samples were later than {arguments.limit:g} µs at the 99th percentile")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
