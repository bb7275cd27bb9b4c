"""Two runs compared cell by cell: ratios, their intervals and verdicts."""

from collections.abc import Sequence

import msgspec

from wallab.errors import LabError
from wallab.record import difference, values
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.record.samples import Sample
from wallab.record.values import VALUES
from wallab.results import comparison
from wallab.results.comparison import Comparison, Verdict


class CellPair(msgspec.Struct, frozen=True):
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
    axes: tuple[str, ...]
    titles: dict[str, dict[str, str]]
    """Axis -> value -> how it is written, where that is otherwise."""
    value: str
    """Of `wallab.record.values`."""
    pairs: tuple[CellPair, ...]
    alone: tuple[Cell, ...]
    """Cells that only one of them measured."""
    failed: tuple[Cell, ...]
    """Cells that failed in every round of the new run."""
    uncompared: tuple[Cell, ...]
    """Other cells of the new run that have no figure to compare with what the old one measured."""
    differing: tuple[str, ...]
    """In what else the runs differ."""

    def heads(self, cell: Cell) -> list[str]:
        """Return the cell's values on the axes, as tables write them."""
        return [self.titles.get(axis, {}).get(cell[axis], cell[axis]) for axis in self.axes]

    @property
    def unjudged(self) -> list[Cell]:
        """The new run's cells that have no verdict, although they were to be compared."""
        few = [pair.cell for pair in self.pairs if pair.verdict == "too few rounds"]
        return [*few, *self.uncompared]


_Key = frozenset[tuple[str, str]]


def _key(cell: Cell) -> _Key:
    return frozenset(cell.items())


def _figures(samples: Sequence[Sample], value: str) -> dict[_Key, list[float]]:
    figures: dict[_Key, list[float]] = {}
    for sample in sorted(samples, key=lambda s: (s.round, s.position)):
        figure = None if sample.control else values.of(sample, value)
        if figure is not None:
            figures.setdefault(_key(sample.cell), []).append(figure)
    return figures


def _failed(samples: Sequence[Sample]) -> set[_Key]:
    """Return the cells that were tried, and failed whenever they were."""
    tried = {_key(sample.cell) for sample in samples if not sample.control}
    return tried - {_key(sample.cell) for sample in samples if sample.figures}


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
    failed = _failed(new[1])
    cells: dict[_Key, Cell] = {}
    for cell in (*plan.cells, *old[0].cells):
        cells.setdefault(_key(cell), cell)
    compared = {
        key: ratio
        for key in cells
        if (ratio := comparison.welch(above.get(key, []), below.get(key, []))) is not None
    }
    if not compared and not failed & below.keys():
        raise LabError("the two runs have no measured cell in common")
    verdicts = comparison.verdicts(
        list(compared.values()), less_is_better=VALUES[value].less_is_better
    )
    lacking = {_key(cell.cell) for cell in plan.not_applicable}
    expected = [cell for cell in plan.cells if _key(cell) in below.keys() - lacking]
    return Against(
        title=plan.experiment.title,
        new=_name(plan),
        old=_name(old[0]),
        axes=tuple(plan.experiment.axes),
        titles=old[0].titles | plan.titles,
        value=value,
        pairs=tuple(
            CellPair(cells[key], ratio, verdict)
            for (key, ratio), verdict in zip(compared.items(), verdicts, strict=True)
        ),
        alone=tuple(cell for key, cell in cells.items() if (key in above) != (key in below)),
        failed=tuple(cell for cell in plan.cells if _key(cell) in failed),
        uncompared=tuple(cell for cell in expected if _key(cell) not in failed | compared.keys()),
        differing=tuple(difference.of_runs(old[0], plan)),
    )


def slower(against: Against, percent: float) -> list[CellPair]:
    """Return the cells that are slower by more than so many percent, and by their verdict."""
    less_is_better = VALUES[against.value].less_is_better

    def share(ratio: float) -> float:
        return 1 / ratio if less_is_better else ratio

    return [
        pair
        for pair in against.pairs
        if pair.verdict == "slower" and share(pair.comparison.ratio) < 1 - percent / 100
    ]
