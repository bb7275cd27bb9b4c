"""Student's t distribution against scipy's."""

import random

import pytest
from scipy import special, stats

from wallab.results import student

# Rounds of a run, and Welch's degrees between those of the two runs; ratios from equal to absurd.
_source = random.Random(5)
CASES = [(_source.uniform(1, 60), 10 ** _source.uniform(-4, 3)) for _ in range(300)]
CASES += [(degrees, t) for degrees in range(1, 41) for t in (0.5, 1.0, 2.0, 12.0)]


def test_probabilities_are_scipys() -> None:
    for degrees, t in CASES:
        expected = 2 * float(special.stdtr(degrees, -t))
        assert student.beyond(t, degrees) == pytest.approx(expected, rel=1e-12)
        assert student.beyond(-t, degrees) == student.beyond(t, degrees)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_quantiles_are_scipys(confidence: float) -> None:
    for degrees, _ in CASES:
        expected = float(stats.t.ppf((1 + confidence) / 2, degrees))
        assert student.quantile(degrees, confidence) == pytest.approx(expected, rel=1e-12)


def test_ends() -> None:
    assert student.beyond(0.0, 5) == 1.0
    assert student.beyond(1e300, 5) == 0.0
    assert student.beyond(1e-300, 5) == 1.0
