#!/usr/bin/env python3
"""What the sandbox of servers does to what is measured: samples with it and without, in turn.

usage: .venv/bin/python benchmarks/server_sandbox_cost.py [--rounds N] [--sync METHOD]…

Needs root, and stock of 18 built. Measures the thread's cells with the cache off (preset smoke) on
one set of drives, each cell once with and once without in each round, the other way around in the
next. Printed are, for each cell, the ratios of the rates and of what the server's processors take
for a transaction, which others on the machine disturb less, with their 95% intervals; and what a
sample's start and its clients took with and without (medians, s). The exit code is 1 if an interval
of the latter reaches beyond the limits: it took more, or too few rounds say that it did not.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Callable, Sequence

from wallab.bench.realbed import RealBed
from wallab.errors import LabError
from wallab.machine import rights
from wallab.machine.confinement import Confinement
from wallab.machine.serversandbox import ServerSandbox
from wallab.record import matrix
from wallab.record.samples import Sample
from wallab.results import comparison
from wallab.results.comparison import Comparison
from wallab.servers import builder

VARIANT = "stock"
LIMITS = (0.95, 1.05)
"""Processor time of the server's with ÷ that without."""


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
        rates, costs = (_of(samples, figure) for figure in (_rate, _cost))
        code |= not LIMITS[0] <= (costs.low or 0) <= (costs.high or LIMITS[1] + 1) <= LIMITS[1]
        starts, clients = _middle(samples, "start"), _clients(samples)
        print(
            f"{cell['sync']}: {comparison.words(rates)} × the rate, {comparison.words(costs)} × "
            f"the server's processor time; start {starts} s, clients {clients} s"
        )
    return code


def _of(samples: Sequence[dict[int, Sample]], figure: Callable[[Sample], float]) -> Comparison:
    with_it, without = ({n: figure(each) for n, each in some.items()} for some in samples)
    compared = comparison.paired(with_it, without)
    assert compared is not None
    return compared


def _rate(sample: Sample) -> float:
    assert sample.figures is not None
    return sample.figures.tps


def _cost(sample: Sample) -> float:
    assert sample.figures is not None
    assert sample.cpu_seconds is not None
    return sample.cpu_seconds.server / sample.figures.transactions


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
