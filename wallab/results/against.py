"""Two runs compared cell by cell: ratios, their intervals and verdicts."""

from collections.abc import Sequence

import msgspec

from wallab.errors import LabError
from wallab.record import difference, values
from wallab.record.manifest import Manifest
from wallab.record.matrix import Cell
from wallab.record.samples import Sample
from wallab.record.values import VALUES
from wallab.results import comparison
from wallab.results.comparison import Comparison, Verdict


class Pair(msgspec.Struct, frozen=True):
    """A cell that both runs measured."""

    cell: Cell
    comparison: Comparison
    """The new run's figure by the old one's."""
    verdict: Verdict


class Against(msgspec.Struct, frozen=True):
    """Two runs side by side."""

    title: str
    new: str
    old: str
    value: str
    """Of `wallab.record.values`."""
    pairs: tuple[Pair, ...]
    alone: tuple[Cell, ...]
    """Cells that only one of them measured."""
    differing: tuple[str, ...]
    """In what else the runs differ."""


def _figures(
    samples: Sequence[Sample], value: str
) -> dict[frozenset[tuple[str, str]], list[float]]:
    found: dict[frozenset[tuple[str, str]], list[float]] = {}
    for sample in sorted(samples, key=lambda s: (s.round, s.position)):
        figure = None if sample.control else values.of(sample, value)
        if figure is not None:
            found.setdefault(frozenset(sample.cell.items()), []).append(figure)
    return found


def _name(plan: Manifest) -> str:
    version = ", ".join(sorted({build.version for build in plan.builds.values()}))
    return f"{plan.name}, preset {plan.preset_name}, PostgreSQL {version}, {plan.started}"


def compare(
    new: tuple[Manifest, Sequence[Sample]],
    old: tuple[Manifest, Sequence[Sample]],
    value: str | None = None,
) -> Against:
    """Compare what two runs measured; LabError if they have no cell in common.

    Rounds of different runs have nothing to do with each other, so this is Welch's test. Verdicts
    are corrected for the number of cells (Holm); a run's own luck, which all of its cells share,
    no test can see: repeat the whole run to see that.
    """
    plan = new[0]
    value = value or plan.experiment.values[0]
    if value not in VALUES:
        raise LabError(f"no value “{value}”; there are {', '.join(VALUES)}")
    above, below = _figures(new[1], value), _figures(old[1], value)
    places: dict[frozenset[tuple[str, str]], Cell] = {}
    for cell in (*plan.cells, *old[0].cells):
        places.setdefault(frozenset(cell.items()), cell)
    found = {
        key: one
        for key in places
        if (one := comparison.welch(above.get(key, []), below.get(key, []))) is not None
    }
    if not found:
        raise LabError("the two runs have no measured cell in common")
    judged = comparison.verdicts(list(found.values()), less_is_better=VALUES[value].less_is_better)
    return Against(
        title=plan.experiment.title,
        new=_name(plan),
        old=_name(old[0]),
        value=value,
        pairs=tuple(
            Pair(places[key], one, verdict)
            for (key, one), verdict in zip(found.items(), judged, strict=True)
        ),
        alone=tuple(cell for key, cell in places.items() if (key in above) != (key in below)),
        differing=tuple(difference.of_runs(old[0], plan)),
    )


def slower(found: Against, percent: float) -> list[Pair]:
    """Return the cells that are slower by more than so many percent, and by their verdict."""
    worse = VALUES[found.value].less_is_better

    def share(one: Comparison) -> float:
        return 1 / one.ratio if worse else one.ratio

    return [
        pair
        for pair in found.pairs
        if pair.verdict == "slower" and share(pair.comparison) < 1 - percent / 100
    ]
