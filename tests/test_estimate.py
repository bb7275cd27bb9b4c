"""Intervals cover as often as they claim, also where a cell stops when its interval is narrow."""

import math
import random
import statistics

import pytest
from scipy import stats

from wallab.results import intervals as estimate

ROUNDS = 20
CELLS = 2000


def test_interval_is_students() -> None:
    values = [100.0, 110.0, 123.0, 90.0, 101.5]
    low, high = stats.t.interval(0.95, 4, loc=statistics.fmean(values), scale=stats.sem(values))
    result = estimate.estimate(values)
    assert result.half_width is not None
    assert math.isclose(result.mean - result.half_width, low)
    assert math.isclose(result.mean + result.half_width, high)
    assert estimate.estimate([5.0]).half_width is None


def covers(values: list[float], truth: float) -> bool:
    """Whether the interval of the values holds the truth."""
    result = estimate.estimate(values)
    assert result.half_width is not None
    return abs(result.mean - truth) <= result.half_width


@pytest.mark.parametrize("rounds", [3, 5, 8, ROUNDS])
def test_coverage_of_a_fixed_number_of_rounds(rounds: int) -> None:
    source = random.Random(rounds)
    # TPS are products of many influences: lognormal, here with a spread of 10%.
    truth = 100 * math.exp(0.1**2 / 2)
    hits = sum(
        covers([100 * math.exp(source.gauss(0, 0.1)) for _ in range(rounds)], truth)
        for _ in range(CELLS)
    )
    assert 0.93 <= hits / CELLS <= 0.97


def stopped(source: random.Random, spread: float, precision: float) -> list[float]:
    """The samples of a cell that is measured until it is precise enough, or out of rounds."""
    values: list[float] = []
    while len(values) < ROUNDS and not estimate.precise_enough(values, precision):
        values.append(source.gauss(100, 100 * spread))
    return values


# The spreads at which most cells stop late are those where stopping does most harm.
@pytest.mark.parametrize("spread", [0.01, 0.03, 0.04, 0.05, 0.07])
def test_coverage_with_stopping(spread: float) -> None:
    source = random.Random(round(spread * 1000))
    cells = [stopped(source, spread, 3) for _ in range(CELLS)]
    hits = sum(covers(values, 100) for values in cells)
    assert 0.93 <= hits / CELLS <= 0.97
    if spread <= 0.03:
        assert statistics.fmean(map(len, cells)) < ROUNDS / 2


def test_nothing_stops_early_or_imprecise() -> None:
    assert not estimate.precise_enough([100.0] * (estimate.STOPPING_ROUNDS - 1), 3)
    assert estimate.precise_enough([100.0] * estimate.STOPPING_ROUNDS, 3)
    assert not estimate.precise_enough([90.0, 110.0] * 5, 3)
    assert estimate.precise_enough([90.0, 110.0] * 5, 10)


def test_outliers_are_told() -> None:
    assert estimate.outliers([100, 101, 99, 100.5, 99.5, 130]) == [5]
    assert estimate.outliers([100, 101, 99, 100.5, 99.5, 101.5]) == []
    assert estimate.outliers([100, 101, 99, 130]) == []
    assert estimate.outliers([100.0] * 6) == []
