"""Two runs compared cell by cell: ratios, their intervals and verdicts."""

from collections.abc import Sequence

from wallab.errors import LabError
from wallab.record import difference, values
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.record.samples import Sample
from wallab.record.values import VALUES
from wallab.results import comparison
from wallab.results.compared import CellPair, Compared


class Against(Compared, frozen=True, kw_only=True):
    """Two runs side by side: the new one's cells by the same cells of the old one."""

    title: str
    new: str
    old: str
    alone: tuple[Cell, ...]
    """Cells that only one of them measured."""
    differing: tuple[str, ...]
    """In what else the runs differ."""


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


def _failed(samples: Sequence[Sample], cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return those of the cells that were tried, and failed whenever they were."""
    tried = [sample.cell for sample in samples if not sample.control]
    measured = [sample.cell for sample in samples if sample.figures]
    return tuple(cell for cell in cells if cell in tried and cell not in measured)


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
    failed = _failed(new[1], plan.cells)
    cells: dict[_Key, Cell] = {}
    for cell in (*plan.cells, *old[0].cells):
        cells.setdefault(_key(cell), cell)
    ratios = {
        key: ratio
        for key in cells
        if (ratio := comparison.welch(above.get(key, []), below.get(key, []))) is not None
    }
    if not ratios and not any(_key(cell) in below for cell in failed):
        raise LabError("the two runs have no measured cell in common")
    virtual = bool(plan.virtual or old[0].virtual)
    verdicts = comparison.verdicts(
        list(ratios.values()), less_is_better=VALUES[value].less_is_better, virtual=virtual
    )
    lacking = {_key(cell.cell) for cell in plan.not_applicable}
    settled = lacking | ratios.keys() | {_key(cell) for cell in failed}
    return Against(
        title=plan.experiment.title,
        new=_name(plan),
        old=_name(old[0]),
        axes=tuple(plan.experiment.axes),
        titles=old[0].titles | plan.titles,
        value=value,
        virtual=virtual,
        pairs=tuple(
            CellPair(cells[key], ratio, verdict)
            for (key, ratio), verdict in zip(ratios.items(), verdicts, strict=True)
        ),
        alone=tuple(cell for key, cell in cells.items() if (key in above) != (key in below)),
        failed=failed,
        uncompared=tuple(cell for cell in plan.cells if _key(cell) in below.keys() - settled),
        differing=tuple(difference.of_runs(old[0], plan)),
    )
