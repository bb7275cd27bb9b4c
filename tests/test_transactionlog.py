"""Latency and steadiness are read from pgbench's log of transactions."""

import math

from wallab.bench import transactionlog
from wallab.record.measured import Latency

BEGIN = 1_700_000_000


def line(client: int, latency_us: object, end: float) -> str:
    """A line as pgbench writes it, of a transaction that ended so many seconds after BEGIN."""
    whole = math.floor(end)
    return f"{client} 1 {latency_us} 0 {BEGIN + whole} {round((end - whole) * 1e6)}"


def test_percentiles_by_nearest_rank() -> None:
    lines = [line(0, number * 1000, number / 100 + 0.2) for number in range(1, 101)]
    course = transactionlog.read(lines)
    assert course is not None
    assert course.latency_ms == Latency(50, 90, 95, 99, 100)
    single = transactionlog.read(lines[:1])
    assert single is not None
    assert single.latency_ms == Latency(1, 1, 1, 1, 1)


def test_whole_seconds_are_counted() -> None:
    # From 0 s on: 3 in the first second, none in the second, 2 in the third, 1 in what is left.
    ends = [0.1, 0.5, 0.9, 2.1, 2.9, 3.5]
    course = transactionlog.read([line(0, 100_000, end) for end in ends])
    assert course is not None
    assert course.per_second == (3, 0, 2)


def test_halves_end_when_the_first_client_has_done_its_share() -> None:
    # Client 0 ends a transaction every 0.25 s for 2 s, client 1 goes on for 2 s more.
    lines = [line(0, 250_000, number / 4) for number in range(1, 9)]
    lines += [line(1, 500_000, number / 2) for number in range(1, 9)]
    course = transactionlog.read(lines)
    assert course is not None
    assert course.halves_tps == (6.0, 6.0)


def test_what_has_no_latency_does_not_count() -> None:
    lines = [line(0, 1000, 0.1), line(0, "failed", 0.2), line(0, "skipped", 0.3), "0 1 10"]
    course = transactionlog.read(lines)
    assert course is not None
    assert course.latency_ms.max == 1
    assert transactionlog.read(lines[1:]) is None
