"""Student's t distribution, two-sided; degrees of freedom need not be whole numbers."""

import functools
import math

_TERMS = 200
"""Of the continued fraction, which takes some tens for as many rounds as a run has."""


def _beta(a: float, b: float, x: float, y: float) -> float:
    """Return the regularized incomplete beta function of x = 1 - y (DLMF 8.17.22)."""
    if x > (a + 1) / (a + b + 2):  # the fraction of the other side converges faster
        return 1 - _beta(b, a, y, x)
    fraction = 1.0
    for m in range(_TERMS, -1, -1):
        fraction = 1 + (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2)) / fraction
        fraction = 1 - (a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)) / fraction
    area = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log(y) - area) / (a * fraction) if x else 0.0


def beyond(t: float, degrees: float) -> float:
    """Return the probability of a value that is as far from 0 as t, or farther."""
    square = t * t
    return _beta(degrees / 2, 0.5, degrees / (degrees + square), square / (degrees + square))


@functools.cache
def quantile(degrees: float, confidence: float) -> float:
    """Return the t that values are beyond with a probability of 1 - confidence, by Newton."""
    area = math.lgamma(0.5) + math.lgamma(degrees / 2) - math.lgamma((degrees + 1) / 2)
    t, step = 0.0, 1.0
    while step > 1e-9 * t:  # the next step would be the square of that
        density = math.exp(-(degrees + 1) / 2 * math.log1p(t * t / degrees) - area)
        step = (beyond(t, degrees) - 1 + confidence) / (2 * density / math.sqrt(degrees))
        t += step
    return t
