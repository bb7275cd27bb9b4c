"""A run's variants compared with one another, cell by cell: each with what it is built on."""

from collections.abc import Sequence

from wallab.record import values
from wallab.record.conditions import server_name
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.record.samples import Sample
from wallab.record.values import VALUES
from wallab.results import changes, comparison
from wallab.results.changes import Change, Side
from wallab.results.compared import CellPair, Compared
from wallab.results.summary import Summary


class VariantPair(CellPair, frozen=True):
    """A cell of a variant, and the same cell of the variant that it is compared with."""

    base: str
    """That variant."""
    changes: tuple[Change, ...] = ()
    """What counters say differs."""


class Within(Compared, frozen=True, kw_only=True):
    """The cells of a run's variants by those of their bases."""

    pairs: tuple[VariantPair, ...]


def _patches(plan: Manifest, cell: Cell, variant: str) -> tuple[str, ...] | None:
    """Return the digests of the variant's patches, in order; None if the run has no such server."""
    build = plan.builds.get(server_name(cell.get("source"), variant))
    return None if build is None else tuple(patch.sha256 for patch in build.patches)


def base_of(plan: Manifest, cell: Cell) -> str | None:
    """Return the variant that the cell's is compared with: the experiment's, or what it stands on.

    That is the one of the run's that has the most of its patches, the first so many of them, and
    none besides. None if the run has no such variant.
    """
    own = cell.get("variant")
    if own is None or own == plan.experiment.compare_to:
        return None
    if plan.experiment.compare_to:
        return plan.experiment.compare_to
    patches = _patches(plan, cell, own) or ()
    below = {
        variant: fewer
        for variant in plan.experiment.axes["variant"]
        if (fewer := _patches(plan, cell, variant)) is not None
        and len(fewer) < len(patches)
        and patches[: len(fewer)] == fewer
    }
    return max(below, key=lambda variant: len(below[variant]), default=None)


_Key = tuple[str, ...]


def _figures(samples: Sequence[Sample], value: str) -> dict[_Key, dict[int, float]]:
    """Return what each cell's rounds had of the figure."""
    figures: dict[_Key, dict[int, float]] = {}
    for sample in samples:
        figure = None if sample.control else values.of(sample, value)
        if figure is not None:
            figures.setdefault(tuple(sample.cell.values()), {})[sample.round] = figure
    return figures


def _sides(samples: Sequence[Sample], summaries: Sequence[Summary]) -> dict[_Key, Side]:
    """Return what was counted of each cell, and its samples."""
    own: dict[_Key, list[Sample]] = {}
    for sample in samples:
        if not sample.control:
            own.setdefault(tuple(sample.cell.values()), []).append(sample)
    keys = {tuple(summary.cell.values()): summary for summary in summaries}
    return {key: (summary.evidence, own.get(key, [])) for key, summary in keys.items()}


def compare(
    plan: Manifest, samples: Sequence[Sample], summaries: Sequence[Summary]
) -> Within | None:
    """Compare each cell with the same one of its variant's base; None if no variant has one.

    Cells of a round were measured one after the other, so this is the paired test of
    `wallab.results.comparison`. Verdicts are corrected for the number of cells (Holm).
    """
    value = plan.experiment.values[0]
    bases = [(s, base) for s in summaries if (base := base_of(plan, s.cell))]
    if not bases:
        return None
    figures = _figures(samples, value)
    ratios, uncompared = [], []
    for own, base in bases:
        others = figures.get(tuple((own.cell | {"variant": base}).values()), {})
        ratio = comparison.paired(figures.get(tuple(own.cell.values()), {}), others)
        if ratio is not None:
            ratios.append((own.cell, base, ratio))
        elif others and own.state not in {"failed", "N/A"}:
            uncompared.append(own.cell)
    sides = _sides(samples, summaries)
    verdicts = comparison.verdicts(
        [ratio for _, _, ratio in ratios],
        less_is_better=VALUES[value].less_is_better,
        virtual=bool(plan.virtual),
    )
    return Within(
        axes=tuple(plan.experiment.axes),
        titles=plan.titles,
        value=value,
        virtual=bool(plan.virtual),
        pairs=tuple(
            VariantPair(
                cell,
                ratio,
                verdict,
                base,
                changes.of(
                    sides[tuple(cell.values())], sides[tuple((cell | {"variant": base}).values())]
                ),
            )
            for (cell, base, ratio), verdict in zip(ratios, verdicts, strict=True)
        ),
        failed=tuple(s.cell for s in summaries if s.state == "failed"),
        uncompared=tuple(uncompared),
    )
