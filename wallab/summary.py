"""From raw samples to what a table shows of each cell."""

import statistics
from typing import Literal

import msgspec

from wallab import evidence
from wallab.estimate import Estimate, estimate
from wallab.evidence import Evidence
from wallab.manifest import Manifest
from wallab.matrix import FSYNC_OFF, Cell, write_cache_of
from wallab.reference import Reference
from wallab.samples import Sample
from wallab.writecache import as_read_back

LATE_NS = 1_000_000
"""A drive whose 99th percentile of lateness is above this did not keep its own time."""


class Summary(msgspec.Struct, frozen=True):
    """A cell of a table."""

    cell: Cell
    state: Literal["measured", "failed", "not run", "N/A"]
    tps: Estimate | None = None
    relative: float | None = None
    """To the row's cell in the experiment's column relative_to."""
    reference: float | None = None
    reference_relative: float | None = None
    failed: int = 0
    """Rounds that failed."""
    evidence: Evidence | None = None
    warnings: tuple[str, ...] = ()


def _expected_caches(plan: Manifest, cell: Cell) -> dict[str, dict[str, str]]:
    return {
        name: as_read_back(write_cache_of(drive, cell))
        for name, drive in plan.experiment.drive.items()
    }


def _warnings(plan: Manifest, cell: Cell, samples: list[Sample]) -> tuple[str, ...]:
    """Say where a sample was not what its cell says: the lab falls back to nothing silently."""
    found: list[str] = []
    expected = _expected_caches(plan, cell)
    if any(sample.write_cache != expected for sample in samples):
        found.append("a drive's write cache was not as asked when it was read back")
    seen = {flags for sample in samples for flags in sample.open_flags}
    if cell["sync"] != FSYNC_OFF and cell["sync"].endswith("_direct"):
        if not seen:
            found.append("nobody was seen with the WAL open, so O_DIRECT is not proved")
        elif not all("O_DIRECT" in flags for flags in seen):
            found.append("the kernel had the WAL open without O_DIRECT")
    late = max(
        (drive.lateness.get("p99_ns", 0) for sample in samples for drive in sample.drive.values()),
        default=0,
    )
    if late > LATE_NS:
        found.append(f"a simulated drive was late: {late / 1e6:.2f} ms at the 99th percentile")
    return tuple(found)


def summarize(plan: Manifest, samples: list[Sample], published: Reference | None) -> list[Summary]:
    """Return the run's cells in the order of the manifest, N/A and not run ones included."""
    experiment = plan.experiment
    by_cell: dict[tuple[str, ...], list[Sample]] = {}
    for sample in sorted(samples, key=lambda s: (s.round, s.position)):
        by_cell.setdefault(tuple(sample.cell.values()), []).append(sample)
    means = {
        key: statistics.fmean([s.figures.tps for s in group if s.figures])
        for key, group in by_cell.items()
        if any(s.figures for s in group)
    }

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
        shown = Summary(
            cell=cell,
            state="not run",
            reference=figure,
            reference_relative=figure / figure_base if figure and figure_base else None,
        )
        method = cell["sync"]
        if method != FSYNC_OFF and method not in plan.methods.get(cell["variant"], (method,)):
            shown = msgspec.structs.replace(shown, state="N/A")
        group = by_cell.get(key, [])
        good = [sample for sample in group if sample.figures]
        if good:
            base_mean = means.get(tuple(base.values())) if base else None
            shown = msgspec.structs.replace(
                shown,
                state="measured",
                tps=estimate([s.figures.tps for s in good if s.figures]),
                relative=means[key] / base_mean if base_mean else None,
                evidence=evidence.of(good),
                warnings=_warnings(plan, cell, good),
            )
        elif group:
            shown = msgspec.structs.replace(shown, state="failed")
        result.append(msgspec.structs.replace(shown, failed=len(group) - len(good)))
    return result
