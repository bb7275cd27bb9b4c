"""From raw samples to what a table shows of each cell."""

import math
import statistics
from typing import Any, Literal

import msgspec

from wallab.record import axes, openflags, values, workloads
from wallab.record.axes import sync
from wallab.record.axes.sync import FSYNC_OFF
from wallab.record.durability import Durability
from wallab.record.experiment import Cell, Experiment
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

SHORT_OF_RATE = 0.02
"""A cell whose TPS is below the rate that was asked for by more than this share is too slow for
it; by more, where so few transactions were to come that chance alone does that."""

LATE_NS = 1_000_000
"""A drive whose 99th percentile of lateness is above this did not keep its own time."""


State = Literal["measured", "failed", "not run", "N/A"]


class Summary(msgspec.Struct, frozen=True):
    """A cell of a table."""

    cell: Cell
    state: State
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
    lag_ms: float | None = None
    """How late its transactions began on average, at a fixed rate; part of their latency."""
    warnings: tuple[str, ...] = ()
    durability: Durability | None = None
    """What power cuts have shown of it, where a campaign is named."""


def _expected_caches(plan: Manifest, cell: Cell) -> dict[str, dict[str, str]]:
    asked = conditions(plan.experiment, plan.preset, cell).drives
    return {name: as_read_back(drive.write_cache) for name, drive in asked.items()}


def _warnings(plan: Manifest, cell: Cell, samples: list[Sample]) -> tuple[str, ...]:
    """Say where a sample was not what its cell says: the lab falls back to nothing silently."""
    warnings: list[str] = []
    expected = _expected_caches(plan, cell)
    if any(sample.write_cache != expected for sample in samples):
        warnings.append("a drive's write cache was not as asked when it was read back")
    limit = memory_mb(plan.experiment, plan.preset)
    if any(sample.values.get("memory_limit_mb", limit) != limit for sample in samples):
        warnings.append("memory was not limited as asked when the limit was read back")
    warnings += _unproved(plan, cell, samples)
    for axis, value in cell.items():
        if others := {s.read_back[axis] for s in samples if axis in s.read_back} - {value}:
            title = axes.find(axis).title or axis
            differing = ", ".join(sorted(others))
            warnings.append(f"{title} was not as asked when it was read back: {differing}")
    warnings += _course(samples) + _rate(plan, cell, samples)
    late = max(
        (drive.lateness.get("p99_ns", 0) for sample in samples for drive in sample.drive.values()),
        default=0,
    )
    if late > LATE_NS:
        warnings.append(f"a simulated drive was late: {late / 1e6:.2f} ms at the 99th percentile")
    return tuple(warnings)


def _unproved(plan: Manifest, cell: Cell, samples: list[Sample]) -> list[str]:
    """Say which flags the method and the variant ask for that the kernel did not show."""
    direct = plan.direct.get(cell.get("variant", ""), ())
    expected = openflags.expected(cell.get("sync", FSYNC_OFF), direct)
    seen = [set(flags.split("|")) for sample in samples for flags in sample.open_flags]
    if expected and not seen:
        return [f"nobody was seen with the WAL open, so {'|'.join(sorted(expected))} is not proved"]
    return [
        f"the kernel had the WAL open without {flag}"
        for flag in sorted(expected)
        if not all(flag in flags for flags in seen)
    ]


def _course(samples: list[Sample]) -> list[str]:
    """Say which rounds lie apart, and whether the cell changed while it was measured."""
    warnings = []
    rates = [sample.figures.tps for sample in samples if sample.figures]
    for place in outliers(rates):
        warnings.append(
            f"round {samples[place].round} lies apart: {rates[place]:.1f} TPS, the median is "
            f"{statistics.median(rates):.1f}; it counts all the same"
        )
    halves = _figures(samples, "steadiness")
    if len(halves) >= VERDICT_ROUNDS:
        steadiness = estimate(halves)
        assert steadiness.half_width is not None
        if abs(steadiness.mean - 1) - steadiness.half_width > UNSTEADY:
            warnings.append(
                f"not steady: the second half of a sample had {steadiness.mean:.2f} times the TPS "
                "of the first"
            )
    return warnings


def _rate(plan: Manifest, cell: Cell, samples: list[Sample]) -> list[str]:
    """Say that transactions did not begin as often as they were to, beyond what chance explains."""
    asked = conditions(plan.experiment, plan.preset, cell).rate
    seconds = sum(sample.figures.seconds for sample in samples if sample.figures)
    if asked is None or not seconds:
        return []
    tps = sum(sample.figures.transactions for sample in samples if sample.figures) / seconds
    # They come at random: the number of so many has a standard deviation of its square root.
    if tps >= asked * (1 - max(SHORT_OF_RATE, 3 / math.sqrt(asked * seconds))):
        return []
    return [
        f"it did not keep up: {tps:.1f} of {asked} transactions/s, so latency grows all the time"
    ]


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
    difference = comparison.paired(*sides)
    name = ", ".join(cell.values())
    if difference is None:
        return f"A/A control ({name}): not measured under both names"
    (verdict,) = comparison.verdicts([difference], virtual=bool(plan.virtual))
    return (
        f"A/A control: {name} under two names, ratio {comparison.words(difference)} over "
        f"{difference.rounds} rounds: {verdict}"
    )


def _figures(samples: list[Sample], name: str) -> list[float]:
    """Return the samples' figures of that name, of those that have it."""
    figures = (values.of(sample, name) for sample in samples)
    return [figure for figure in figures if figure is not None]


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
    ratio = comparison.paired(*sides)
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return ratio.low, ratio.high


def _method_lacks(plan: Manifest, cell: Cell) -> str:
    """Say that the cell's server lacks its wal_sync_method, if it does."""
    method = cell.get("sync", FSYNC_OFF)
    known = plan.methods.get(cell.get("variant", ""), (method,))
    return "" if method == FSYNC_OFF or method in known else sync.LACKS


_Key = tuple[str, ...]


def _key(cell: Cell) -> _Key:
    return tuple(cell.values())


def summarize(plan: Manifest, samples: list[Sample], published: Reference | None) -> list[Summary]:
    """Return a summary of every cell, in the plan's order, those never measured included."""
    groups: dict[_Key, list[Sample]] = {}
    for sample in sorted(samples, key=lambda s: (s.round, s.position)):
        if not sample.control:  # which is the same cell under another name
            groups.setdefault(_key(sample.cell), []).append(sample)
    reasons = {_key(lacking.cell): lacking.reason for lacking in plan.not_applicable}
    return [
        _summary(
            plan, cell, groups, reasons.get(_key(cell)) or _method_lacks(plan, cell), published
        )
        for cell in plan.cells
    ]


def _summary(
    plan: Manifest,
    cell: Cell,
    groups: dict[_Key, list[Sample]],
    reason: str,
    published: Reference | None,
) -> Summary:
    """Sum up one cell; `groups` has the samples of all, and `reason` says why this one is N/A."""
    experiment = plan.experiment
    base = (
        None
        if experiment.relative_to is None
        else cell | {experiment.column: experiment.relative_to}
    )
    group = groups.get(_key(cell), [])
    good = [sample for sample in group if sample.figures]
    state: State = "N/A" if reason else "not run"
    if group:
        state = "measured" if good else "failed"
    return Summary(
        cell=cell,
        state=state,
        reason=reason,
        failed=len(group) - len(good),
        **(_published(published, experiment, cell, base) if published else {}),
        **(_measured(plan, cell, good) if good else {}),
        **(_ratio(good, groups.get(_key(base), []), experiment.values[0]) if base and good else {}),
        is_base=bool(good) and base == cell,
    )


def _published(
    published: Reference, experiment: Experiment, cell: Cell, base: Cell | None
) -> dict[str, Any]:
    """Return what was published of the cell, as fields of its summary."""
    column, first = experiment.column, experiment.values[0]
    figure = published.figure(cell, column)
    figure_base = published.figure(base, column) if base else None
    ratio = published.figure(cell, column, RELATIVE)
    figures = {
        name: published.figure(cell, column, None if name == first else name)
        for name in (experiment.values if len(experiment.values) > 1 else ())
    }
    return {
        "reference": figure,
        "reference_relative": figure / figure_base if figure and figure_base else ratio,
        "references": {name: figure for name, figure in figures.items() if figure is not None},
    }


def _measured(plan: Manifest, cell: Cell, good: list[Sample]) -> dict[str, Any]:
    """Return what the samples that did not fail say, as fields of their cell's summary."""
    figures = {name: _figures(good, name) for name in plan.experiment.values}
    return {
        "tps": estimate(_figures(good, "tps")),
        "values": {name: estimate(known) for name, known in figures.items() if known},
        "evidence": evidence.of(good, _units(plan, cell)) if _writes(plan, cell) else None,
        "lag_ms": statistics.fmean(lags) if (lags := _figures(good, "lag")) else None,
        "warnings": _warnings(plan, cell, good),
    }


def _ratio(good: list[Sample], base: list[Sample], name: str) -> dict[str, Any]:
    """Return how the figure compares to that of the base's samples, as fields of a summary."""
    own, others = _figures(good, name), _figures(base, name)
    mean = statistics.fmean(others) if others else 0.0
    return {
        "relative": statistics.fmean(own) / mean if own and mean else None,
        "relative_interval": _within_rounds(good, base, name),
    }
