"""pgbench's own log: a line for each transaction, from which latency and steadiness are read.

The format is that of `pgbench -l`: client, number, latency (µs), script, and when the transaction
ended (s and µs since 1970).
"""

import itertools
import math
from collections.abc import Iterable

import msgspec

from wallab.record.number import Count, Figure, Rate


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


def percentile(ordered: list[float], percent: float) -> float:
    """Return the percentile by nearest rank of values in ascending order, at least one."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def read(lines: Iterable[str]) -> Course | None:
    """Return the course of a run; None if the log has no whole transaction.

    Failed and skipped transactions have a word instead of a latency, and do not count.
    """
    latencies: list[float] = []
    ends: list[float] = []
    last_of: dict[str, float] = {}
    begin = math.inf
    for line in lines:
        fields = line.split()
        if len(fields) < 6 or not fields[2].isdigit():
            continue
        latency = int(fields[2]) / 1e6
        end = int(fields[4]) + int(fields[5]) / 1e6
        latencies.append(latency * 1000)
        ends.append(end)
        last_of[fields[0]] = max(end, last_of.get(fields[0], 0.0))
        begin = min(begin, end - latency)
    if not ends:
        return None
    latencies.sort()
    ends.sort()
    counts = [0] * (int(ends[-1] - begin) + 1)
    for end in ends:
        counts[int(end - begin)] += 1
    # A client that has done its share leaves the others more room: look no further than that.
    busy = min(last_of.values()) - begin
    middle = begin + busy / 2
    first = sum(1 for _ in itertools.takewhile(lambda end: end <= middle, ends))
    both = sum(1 for end in ends if end <= begin + busy)
    half = busy / 2
    return Course(
        latency_ms=Latency(
            *(round(percentile(latencies, percent), 3) for percent in (50, 90, 95, 99, 100))
        ),
        per_second=tuple(counts[:-1]),
        halves_tps=(
            (round(first / half, 4), round((both - first) / half, 4)) if half > 0 else (0.0, 0.0)
        ),
    )
