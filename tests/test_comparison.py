"""Comparisons against scipy's tests, and false verdicts on sessions that do not differ."""

import math
import random

import pytest
from scipy import stats

from wallab.results import comparison
from wallab.results import intervals as estimate
from wallab.results.comparison import Comparison

NEW = [102.0, 99.0, 108.0, 105.0, 101.0, 103.5]
OLD = [95.0, 99.5, 91.0, 97.0, 90.0]


def logs(values: list[float]) -> list[float]:
    """The values' logarithms."""
    return [math.log(value) for value in values]


def test_welch_is_scipys() -> None:
    result = comparison.welch(NEW, OLD)
    expected = stats.ttest_ind(logs(NEW), logs(OLD), equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert result is not None
    assert result.p == pytest.approx(expected.pvalue)
    assert (result.low, result.high) == pytest.approx(
        (math.exp(interval.low), math.exp(interval.high))
    )
    assert result.ratio == pytest.approx(stats.gmean(NEW) / stats.gmean(OLD))
    assert result.rounds == 5


def test_paired_is_scipys_and_takes_shared_rounds_only() -> None:
    new = dict(zip((1, 2, 4, 5, 6, 7), NEW, strict=True))
    old = dict(zip((1, 2, 3, 5, 6), OLD, strict=True))
    shared = [1, 2, 5, 6]
    expected = stats.ttest_rel(logs([new[r] for r in shared]), logs([old[r] for r in shared]))
    interval = expected.confidence_interval(0.95)
    result = comparison.paired(new, old)
    assert result is not None
    assert result.p == pytest.approx(expected.pvalue)
    assert (result.low, result.high) == pytest.approx(
        (math.exp(interval.low), math.exp(interval.high))
    )
    assert result.rounds == 4


def test_without_rounds_or_rates() -> None:
    assert comparison.welch([], OLD) is None
    assert comparison.welch([0.0, 1.0], OLD) is None
    assert comparison.paired({1: 5.0}, {2: 5.0}) is None
    once = comparison.welch([100.0], [50.0])
    assert once is not None
    assert once.ratio == pytest.approx(2)
    assert (once.low, once.high, once.p, once.rounds) == (None, None, None, 1)
    same = comparison.welch([100.0] * 5, [100.0] * 5)
    assert same is not None
    assert (same.ratio, same.p) == (1.0, 1.0)
    other = comparison.paired({1: 2.0, 2: 2.0}, {1: 1.0, 2: 1.0})
    assert other is not None
    assert other.p == 0.0


def test_holm() -> None:
    # Holm (1979): the smallest of four times 4, the next times 3, and never less than before.
    assert comparison.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert comparison.holm([0.6, 0.7]) == [1.0, 1.0]
    assert comparison.holm([]) == []


def of(ratio: float, p: float | None, rounds: int) -> Comparison:
    """A comparison with what a verdict looks at."""
    return Comparison(ratio, None, None, p, rounds)


def test_verdicts() -> None:
    verdicts = comparison.verdicts(
        [
            of(1.2, 1e-6, 5),
            of(0.8, 1e-6, 5),
            of(0.9, 0.039, 9),
            of(0.95, 0.03, 9),
            of(0.1, 1e-9, 4),
            of(2, None, 1),
        ]
    )
    assert verdicts == ["faster", "slower", "no difference seen", "no difference seen",
                     "too few rounds", "too few rounds"]  # fmt: skip
    # Alone, 0.039 is a verdict: what has too few rounds does not count among the comparisons.
    assert comparison.verdicts([of(0.9, 0.039, 9), of(0.1, 1e-9, 4)])[0] == "slower"


def session(source: random.Random, spreads: list[float], rounds: int) -> list[list[float]]:
    """TPS of a session: for each cell its rounds; all cells suffer what a round suffers."""
    slow = [source.gauss(0, 0.03) for _ in range(rounds)]
    return [
        [100 * math.exp(drift + source.gauss(0, spread)) for drift in slow] for spread in spreads
    ]


SPREADS = [0.005 * number for number in range(1, 19)]


@pytest.mark.parametrize("rounds", [comparison.VERDICT_ROUNDS, 8])
def test_sessions_that_do_not_differ(rounds: int) -> None:
    """1,000 times two sessions of 18 cells: at least one false verdict in 5% at most."""
    source = random.Random(2)
    wrong = 0
    for _ in range(1000):
        new, old = session(source, SPREADS, rounds), session(source, SPREADS, rounds)
        pairs = [comparison.welch(a, b) for a, b in zip(new, old, strict=True)]
        judged = comparison.verdicts([pair for pair in pairs if pair])
        wrong += any(verdict in {"faster", "slower"} for verdict in judged)
    assert wrong <= 50


def test_cells_that_do_not_differ_within_a_session() -> None:
    """1,000 sessions with the same cell under two names, both stopped when precise enough."""
    source = random.Random(3)
    wrong = 0
    for _ in range(1000):
        kept = []
        for values in session(source, [0.02, 0.02], 20):
            rounds = estimate.STOPPING_ROUNDS
            while rounds < len(values) and not estimate.precise_enough(values[:rounds], 3):
                rounds += 1
            kept.append(dict(enumerate(values[:rounds])))
        pair = comparison.paired(*kept)
        assert pair is not None
        wrong += comparison.verdicts([pair])[0] in {"faster", "slower"}
    assert wrong <= 50


def test_a_difference_is_found() -> None:
    """A tenth slower in one of 18 cells, with 8 rounds at a spread of 2%: nearly always."""
    source = random.Random(4)
    hits = 0
    for _ in range(100):
        new, old = ([[100 * math.exp(source.gauss(0, 0.02)) for _ in range(8)]
                     for _ in range(18)] for _ in range(2))  # fmt: skip
        new[7] = [value * 0.9 for value in new[7]]
        pairs = [comparison.welch(a, b) for a, b in zip(new, old, strict=True)]
        hits += comparison.verdicts([pair for pair in pairs if pair])[7] == "slower"
    assert hits >= 99
