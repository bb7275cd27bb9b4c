"""Means of repeated measurements, how sure they are, and when they are sure enough."""

import math
import statistics
from collections.abc import Sequence

import msgspec

from wallab.results import student

CONFIDENCE = 0.95

STOPPING_ROUNDS = 8
"""No cell is done before so many rounds.

To look at an interval and to stop when it is narrow prefers samples that happen to lie close
together. From 8 rounds on the 95% interval still covers in 93.7% or more of cases; from 5 on it
would in 92.4% (tests/test_estimate.py simulates it).
"""

OUTLIER_SCORE = 3.5
"""Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): the modified z-score above which
a value is looked at again."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean over rounds."""

    mean: float
    half_width: float | None
    """Of the 95% t interval; None for a single round."""
    n: int


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of the values, at least one, with its 95% interval (Student's t)."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, None, len(values))
    error = statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, student.quantile(len(values) - 1, CONFIDENCE) * error, len(values))


def precise_enough(values: Sequence[float], precision: float) -> bool:
    """Whether the 95% interval is at most ± so many percent of the mean, after enough rounds."""
    if len(values) < STOPPING_ROUNDS:
        return False
    interval = estimate(values)
    assert interval.half_width is not None
    return interval.half_width <= precision / 100 * interval.mean


def outliers(values: Sequence[float]) -> list[int]:
    """Return the places of values far from the median, by their modified z-score.

    Of fewer than 5 values none is told apart. They are for showing: no figure leaves them out.
    """
    if len(values) < 5:
        return []
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    return [
        place
        for place, value in enumerate(values)
        if deviation and 0.6745 * abs(value - middle) / deviation > OUTLIER_SCORE
    ]
