#!/usr/bin/env python3
"""What the sandbox of servers does to what is measured: samples with it and without, in turn.

usage: .venv/bin/python benchmarks/server_sandbox_cost.py [--rounds N] [--sync METHOD]…

Needs root, and stock of 18 built. Measures the thread's cells with the cache off (preset smoke) on
one set of drives, each cell once with and once without in each round, the other way around in the
next. Printed are, for each cell, the ratio of the rates with its 95% interval, and what a sample's
start and its clients took with and without (medians, s). The exit code is 1 if the interval of a
cell reaches beyond the limits: it was slower, or too few rounds say that it was not.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Sequence

from wallab.bench.realbed import RealBed
from wallab.errors import LabError
from wallab.machine import rights
from wallab.machine.confinement import Confinement
from wallab.machine.serversandbox import ServerSandbox
from wallab.record import matrix
from wallab.record.samples import Sample
from wallab.results import comparison
from wallab.servers import builder

VARIANT = "stock"
LIMITS = (0.95, 1.05)
"""Rate with ÷ rate without."""


def measure(rounds: int, methods: Sequence[str]) -> int:
    """Measure, print a line for each cell, and return the exit code."""
    rights.check()
    experiment, preset = matrix.choose(matrix.read(), "thread", "smoke")
    experiment = matrix.with_variants(experiment, (VARIANT,))
    cells = tuple({"variant": VARIANT, "write_cache": "off", "sync": method} for method in methods)
    servers = builder.servers_of([(None, VARIANT)], experiment.source, "auto")
    trees = {name: server.path for name, server in servers.items()}
    ways: dict[str, Confinement] = {"with": ServerSandbox(), "without": Confinement()}
    taken: dict[tuple[int, str], dict[int, Sample]] = {
        (place, way): {} for place in range(len(cells)) for way in ways
    }
    with contextlib.closing(RealBed(experiment, preset, cells, trees, ways["with"])) as bed:
        bed.open()
        for number in range(rounds):
            for place, cell in enumerate(cells):
                for way in list(ways)[:: -1 if number % 2 else 1]:
                    bed.confinement = ways[way]
                    sample = bed.sample(cell, number, place)
                    if sample.figures is None:
                        raise LabError(f"{way}: {sample.error}")
                    taken[place, way][number] = sample
                    print(f"{cell['sync']:14} {way:8} {sample.figures.tps:9.1f}", flush=True)
    code = 0
    for place, cell in enumerate(cells):
        samples = [taken[place, way] for way in ways]
        rates = [
            {number: each.figures.tps for number, each in some.items() if each.figures}
            for some in samples
        ]
        compared = comparison.paired(*rates)
        assert compared is not None
        low, high = compared.low or 0.0, compared.high or float("inf")
        if not LIMITS[0] <= low <= high <= LIMITS[1]:
            code = 1
        starts, clients = _middle(samples, "start"), _clients(samples)
        words = comparison.words(compared)
        print(f"{cell['sync']}: {words} × the rate; start {starts} s, clients {clients} s")
    return code


def _middle(samples: Sequence[dict[int, Sample]], phase: str) -> str:
    middles = (statistics.median(s.phases[phase] for s in some.values()) for some in samples)
    return " and ".join(f"{middle:.3f}" for middle in middles)


def _clients(samples: Sequence[dict[int, Sample]]) -> str:
    middles = (
        statistics.median(s.cpu_seconds.client for s in some.values() if s.cpu_seconds)
        for some in samples
    )
    return " and ".join(f"{middle:.3f}" for middle in middles)


def main() -> int:
    """Read the command line, measure, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8, help="samples of each (%(default)s)")
    parser.add_argument("--sync", action="append", help="a column of the thread's table")
    given = parser.parse_args()
    try:
        return measure(given.rounds, given.sync or ["fsync=false", "open_datasync"])
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
