"""From raw samples to what a table shows of each cell."""

import statistics
from typing import Literal

import msgspec

from wallab.record import axes, values, workloads
from wallab.record.axes import sync
from wallab.record.axes.sync import FSYNC_OFF
from wallab.record.durability import Durability
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.record.matrix import conditions, memory_mb
from wallab.record.reference import RELATIVE, Reference
from wallab.record.samples import Sample
from wallab.record.writecache import as_read_back
from wallab.results import comparison, evidence
from wallab.results.comparison import VERDICT_ROUNDS
from wallab.results.evidence import Evidence
from wallab.results.intervals import Estimate, estimate, outliers

UNSTEADY = 0.1
"""A cell whose second half differs from its first by more than this share is not steady."""

LATE_NS = 1_000_000
"""A drive whose 99th percentile of lateness is above this did not keep its own time."""


class Summary(msgspec.Struct, frozen=True):
    """A cell of a table."""

    cell: Cell
    state: Literal["measured", "failed", "not run", "N/A"]
    reason: str = ""
    """Why it is N/A."""
    tps: Estimate | None = None
    values: dict[str, Estimate] = {}
    """All the figures that the experiment shows, by name."""
    relative: float | None = None
    """The experiment's first value, to that of the row's cell in the column relative_to."""
    relative_interval: tuple[float, float] | None = None
    """Its 95% interval, from the ratios within each round."""
    is_base: bool = False
    """Whether it is itself the cell that its row's ratios are to."""
    reference: float | None = None
    reference_relative: float | None = None
    references: dict[str, float] = {}
    """The published figures by value, where there are several."""
    failed: int = 0
    """Rounds that failed."""
    evidence: Evidence | None = None
    warnings: tuple[str, ...] = ()
    durability: Durability | None = None
    """What power cuts have shown of it, where a campaign is named."""


def _expected_caches(plan: Manifest, cell: Cell) -> dict[str, dict[str, str]]:
    asked = conditions(plan.experiment, plan.preset, cell).drives
    return {name: as_read_back(drive.write_cache) for name, drive in asked.items()}


def _warnings(plan: Manifest, cell: Cell, samples: list[Sample]) -> tuple[str, ...]:
    """Say where a sample was not what its cell says: the lab falls back to nothing silently."""
    found: list[str] = []
    expected = _expected_caches(plan, cell)
    if any(sample.write_cache != expected for sample in samples):
        found.append("a drive's write cache was not as asked when it was read back")
    limit = memory_mb(plan.experiment, plan.preset)
    if any(sample.values.get("memory_limit_mb", limit) != limit for sample in samples):
        found.append("memory was not limited as asked when the limit was read back")
    seen = {flags for sample in samples for flags in sample.open_flags}
    if cell.get("sync", FSYNC_OFF).endswith("_direct"):
        if not seen:
            found.append("nobody was seen with the WAL open, so O_DIRECT is not proved")
        elif not all("O_DIRECT" in flags for flags in seen):
            found.append("the kernel had the WAL open without O_DIRECT")
    for axis, value in cell.items():
        if told := {s.read_back[axis] for s in samples if axis in s.read_back} - {value}:
            title = axes.find(axis).title or axis
            found.append(f"{title} was not as asked when it was read back: {', '.join(told)}")
    found += _course(samples)
    late = max(
        (drive.lateness.get("p99_ns", 0) for sample in samples for drive in sample.drive.values()),
        default=0,
    )
    if late > LATE_NS:
        found.append(f"a simulated drive was late: {late / 1e6:.2f} ms at the 99th percentile")
    return tuple(found)


def _course(samples: list[Sample]) -> list[str]:
    """Say which rounds lie apart, and whether the cell changed while it was measured."""
    found = []
    rates = [sample.figures.tps for sample in samples if sample.figures]
    for place in outliers(rates):
        found.append(
            f"round {samples[place].round} lies apart: {rates[place]:.1f} TPS, the median is "
            f"{statistics.median(rates):.1f}; it counts all the same"
        )
    halves = _figures(samples, "steadiness")
    if len(halves) >= VERDICT_ROUNDS:
        steadiness = estimate(halves)
        assert steadiness.half_width is not None
        if abs(steadiness.mean - 1) - steadiness.half_width > UNSTEADY:
            found.append(
                f"not steady: the second half of a sample had {steadiness.mean:.2f} times the TPS "
                "of the first"
            )
    return found


def control(plan: Manifest, samples: list[Sample]) -> str:
    """Say what the A/A control showed: the same cell under two names; nothing without one."""
    cell = plan.preset.control
    if cell is None:
        return ""
    sides = [
        {s.round: s.figures.tps for s in samples if s.cell == cell and s.control is second
         and s.figures}
        for second in (True, False)
    ]  # fmt: skip
    found = comparison.paired(*sides)
    name = ", ".join(cell.values())
    if found is None:
        return f"A/A control ({name}): not measured under both names"
    (verdict,) = comparison.verdicts([found])
    return (
        f"A/A control: {name} under two names, ratio {comparison.shown(found)} over "
        f"{found.rounds} rounds: {verdict}"
    )


def _figures(samples: list[Sample], name: str) -> list[float]:
    """Return the samples' figures of that name, of those that have it."""
    found = (values.of(sample, name) for sample in samples)
    return [figure for figure in found if figure is not None]


def _units(plan: Manifest, cell: Cell) -> int:
    """Return how many spindles or channels the drive has that the cell's WAL is on."""
    name = "wal" if "wal" in plan.experiment.drive else "data"
    parameters = plan.drives.get(name) or plan.drives.get(f"{name} ({cell.get('profile')})", {})
    return int(parameters.get("units", "1"))


def _writes(plan: Manifest, cell: Cell) -> bool:
    """Whether the cell's transactions write WAL."""
    return workloads.find(cell.get("workload", plan.experiment.workload)).writes


def _within_rounds(
    samples: list[Sample], base: list[Sample], name: str
) -> tuple[float, float] | None:
    """Return the 95% interval of the ratio, from the rounds that have both."""
    sides = [
        {s.round: figure for s in side if (figure := values.of(s, name)) is not None}
        for side in (samples, base)
    ]
    found = comparison.paired(*sides)
    if found is None or found.low is None or found.high is None:
        return None
    return found.low, found.high


def _method_lacks(plan: Manifest, cell: Cell) -> str:
    """Say that the cell's server lacks its wal_sync_method, if it does."""
    method = cell.get("sync", FSYNC_OFF)
    known = plan.methods.get(cell.get("variant", ""), (method,))
    return "" if method == FSYNC_OFF or method in known else sync.LACKS


def summarize(plan: Manifest, samples: list[Sample], published: Reference | None) -> list[Summary]:
    """Return the run's cells in the order of the manifest, N/A and not run ones included."""
    experiment = plan.experiment
    by_cell: dict[tuple[str, ...], list[Sample]] = {}
    for sample in sorted(samples, key=lambda s: (s.round, s.position)):
        if sample.control:
            continue  # the same cell under another name
        by_cell.setdefault(tuple(sample.cell.values()), []).append(sample)
    first = experiment.values[0]
    means = {
        key: statistics.fmean(found)
        for key, group in by_cell.items()
        if (found := _figures(group, first))
    }
    reasons = {tuple(one.cell.values()): one.reason for one in plan.not_applicable}

    def base_of(cell: Cell) -> Cell | None:
        if experiment.relative_to is None:
            return None
        return cell | {experiment.column: experiment.relative_to}

    result: list[Summary] = []
    for cell in plan.cells:
        key = tuple(cell.values())
        base = base_of(cell)
        figure = published.figure(cell, experiment.column) if published else None
        figure_base = published.figure(base, experiment.column) if published and base else None
        ratio = published.figure(cell, experiment.column, RELATIVE) if published else None
        shown = Summary(
            cell=cell,
            state="not run",
            reference=figure,
            reference_relative=figure / figure_base if figure and figure_base else ratio,
        )
        if published and len(experiment.values) > 1:
            figures = {
                name: published.figure(cell, experiment.column, None if name == first else name)
                for name in experiment.values
            }
            shown = msgspec.structs.replace(
                shown,
                references={name: figure for name, figure in figures.items() if figure is not None},
            )
        if reason := reasons.get(key) or _method_lacks(plan, cell):
            shown = msgspec.structs.replace(shown, state="N/A", reason=reason)
        group = by_cell.get(key, [])
        good = [sample for sample in group if sample.figures]
        if good:
            base_mean = means.get(tuple(base.values())) if base else None
            interval = (
                _within_rounds(good, by_cell.get(tuple(base.values()), []), first) if base else None
            )
            shown = msgspec.structs.replace(
                shown,
                state="measured",
                tps=estimate([s.figures.tps for s in good if s.figures]),
                values={
                    name: estimate(found)
                    for name in experiment.values
                    if (found := _figures(good, name))
                },
                relative=means[key] / base_mean if base_mean and key in means else None,
                relative_interval=interval,
                is_base=base == cell,
                evidence=evidence.of(good, _units(plan, cell)) if _writes(plan, cell) else None,
                warnings=_warnings(plan, cell, good),
            )
        elif group:
            shown = msgspec.structs.replace(shown, state="failed")
        result.append(msgspec.structs.replace(shown, failed=len(group) - len(good)))
    return result
