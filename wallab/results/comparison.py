"""Is one set of measurements faster than another? Ratios, their intervals, and verdicts.

Rates differ by factors, so everything is done on their logarithms: a ratio is that of geometric
means, and its interval lies evenly about it on the logarithmic scale.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from wallab.results import student
from wallab.results.intervals import CONFIDENCE

VERDICT_ROUNDS = 5
"""No verdict without so many rounds on either side."""

LEVEL = 0.04
"""Of a session's verdicts together. Stopping early when precise enough adds up to one in a hundred
false ones to those of the tests (tests/test_comparison.py), which makes it 5%."""

LEAST_VIRTUAL = 0.01
"""The least difference that a verdict takes in virtual time, as a share: a clock that counts
instructions spreads so little that tests tell differences apart which no user would ever see."""

Verdict = Literal[
    "faster", "slower", "differs by less than 1%", "no difference seen", "too few rounds"
]


class Comparison(msgspec.Struct, frozen=True):
    """A ratio of two rates."""

    ratio: float
    low: float | None
    """The 95% interval of this comparison alone; None where a side has a single round."""
    high: float | None
    p: float | None
    """Of no difference, two-sided, of this comparison alone."""
    rounds: int
    """On the side that has fewer."""


def words(comparison: Comparison) -> str:
    """Write a ratio with its interval, such as 1.003 (0.991 to 1.015)."""
    if comparison.low is None or comparison.high is None:
        return f"{comparison.ratio:.3f} (one round)"
    return f"{comparison.ratio:.3f} ({comparison.low:.3f} to {comparison.high:.3f})"


def _ratio(difference: float) -> float:
    """Return the ratio that a difference of logarithms is, below what no drawing could show."""
    return math.exp(min(difference, 40.0))


def _of(difference: float, error: float, degrees: float, rounds: int) -> Comparison:
    if error == 0:
        p = 1.0 if difference == 0 else 0.0
    else:
        p = student.beyond(difference / error, degrees)
    reach = student.quantile(degrees, CONFIDENCE) * error
    return Comparison(
        _ratio(difference),
        _ratio(difference - reach),
        _ratio(difference + reach),
        p,
        rounds,
    )


def welch(new: Sequence[float], old: Sequence[float]) -> Comparison | None:
    """Compare rates of two sessions (Welch's t test); None if one has none, or one is 0."""
    if not new or not old or min(*new, *old) <= 0:
        return None
    above, below = [math.log(v) for v in new], [math.log(v) for v in old]
    difference = statistics.fmean(above) - statistics.fmean(below)
    rounds = min(len(new), len(old))
    if rounds < 2:
        return Comparison(_ratio(difference), None, None, None, rounds)
    parts = [statistics.variance(side) / len(side) for side in (above, below)]
    error = math.sqrt(sum(parts))
    weights = sum(p * p / (len(s) - 1) for p, s in zip(parts, (above, below), strict=True))
    degrees = sum(parts) ** 2 / weights if weights else float(len(new) + len(old) - 2)
    return _of(difference, error, degrees, rounds)


def paired(new: Mapping[int, float], old: Mapping[int, float]) -> Comparison | None:
    """Compare rates of the same session, round by round (round -> rate); a paired t test.

    What slows a whole round down cancels. None without a round that has both, or if a rate is 0.
    """
    shared = sorted(new.keys() & old.keys())
    if not shared or min(min(new[r], old[r]) for r in shared) <= 0:
        return None
    differences = [math.log(new[r] / old[r]) for r in shared]
    difference = statistics.fmean(differences)
    rounds = len(shared)
    if rounds < 2:
        return Comparison(_ratio(difference), None, None, None, rounds)
    return _of(difference, statistics.stdev(differences) / math.sqrt(rounds), rounds - 1, rounds)


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return the probabilities adjusted by Holm (1979): all together err no more than one."""
    order = sorted(range(len(probabilities)), key=lambda place: probabilities[place])
    adjusted = [0.0] * len(probabilities)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * probabilities[place]))
        adjusted[place] = highest
    return adjusted


def verdicts(
    comparisons: Sequence[Comparison], *, less_is_better: bool = False, virtual: bool = False
) -> list[Verdict]:
    """Return a verdict on each comparison, corrected for how many there are.

    Those with too few rounds get none, and do not count among the others. Figures of which less is
    better, such as latencies, are slower where they are more. In virtual time a difference also
    has to be worth the name.
    """
    judged = [
        (place, comparison.p)
        for place, comparison in enumerate(comparisons)
        if comparison.p is not None and comparison.rounds >= VERDICT_ROUNDS
    ]
    result: list[Verdict] = ["too few rounds"] * len(comparisons)
    corrected = holm([p for _, p in judged])
    for (place, _), p in zip(judged, corrected, strict=True):
        if p >= LEVEL:
            result[place] = "no difference seen"
        elif virtual and 1 / (1 + LEAST_VIRTUAL) < comparisons[place].ratio < 1 + LEAST_VIRTUAL:
            result[place] = "differs by less than 1%"
        else:
            more = comparisons[place].ratio > 1
            result[place] = "faster" if more != less_is_better else "slower"
    return result
