"""A run's table: rows and columns as the experiment lays them out."""

import math
import statistics
from collections.abc import Callable

import msgspec

from wallab.errors import LabError
from wallab.record import axes, workloads
from wallab.record.durability import Durability
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.record.reference import Reference
from wallab.record.values import VALUES
from wallab.results.summary import Summary
from wallab.results.within import Within


class Row(msgspec.Struct, frozen=True):
    """A row: its values on the axes of the rows, and a cell for each column, if there is one."""

    head: tuple[str, ...]
    cells: tuple[Summary | None, ...]


class Table(msgspec.Struct, frozen=True):
    """A run's cells in rows and columns."""

    title: str
    subtitle: str
    row_axes: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: Reference | None
    values: tuple[str, ...] = ("tps",)
    relative_to: str = ""
    """The column that ratios are to, in words."""
    further_notes: tuple[str, ...] = ()
    """The experiment's own."""
    control: str = ""
    """What the A/A control showed, in words."""
    columns_axis: str = ""
    titles: dict[str, dict[str, str]] = {}
    """Axis -> value -> how it is written, where that is otherwise."""
    machine: str = ""
    """The virtual machine in words; nothing where it was a real one."""
    within: Within | None = None
    """Its variants beside those that they are built on; None where no variant has one."""

    left_out: tuple[str, ...] = ()
    """Which columns and rows are not shown (`wallab.results.condensed`), and why."""

    def value_title(self, axis: str, value: str) -> str:
        """Return the axis's value as the run's tables write it, such as a variant."""
        return self.titles.get(axis, {}).get(value, value)

    def heads(self, row: Row) -> list[str]:
        """Return the row's values on its axes, as they are written."""
        return list(map(self.value_title, self.row_axes, row.head))

    @property
    def cells(self) -> list[Summary]:
        """The cells that there are, row by row."""
        return [cell for row in self.rows for cell in row.cells if cell]

    @property
    def deviation(self) -> tuple[float, int] | None:
        """How far our ratios are from the published ones: a factor, and of how many cells.

        The geometric mean of each cell's deviation, up or down; 1 is none. Both ratios are to the
        row's cell in the same column, which itself is left out.
        """
        deviations = [
            abs(math.log(cell.relative / cell.reference_relative))
            for cell in self.cells
            if cell.relative and cell.reference_relative and not cell.is_base
        ]
        if not deviations:
            return None
        return math.exp(statistics.fmean(deviations)), len(deviations)

    @property
    def deviation_note(self) -> str:
        """The deviation in words; nothing if nothing was published."""
        if self.deviation is None or self.reference is None:
            return ""
        factor, cells = self.deviation
        return (
            f"Ratios to {self.relative_to} deviate from those of {self.reference.title} by a "
            f"factor of {factor:.2f}, up or down (geometric mean over {cells} cells)"
        )

    @property
    def lacking(self) -> list[str]:
        """The reasons why cells are N/A."""
        return sorted({cell.reason for cell in self.cells if cell.reason})

    @property
    def notes(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Warnings, each with the cells (row, column) that it is about."""
        notes: dict[str, list[tuple[str, str]]] = {}
        for row in self.rows:
            for column, cell in zip(self.columns, row.cells, strict=True):
                if cell is None:
                    continue
                texts = list(cell.warnings)
                if cell.failed:
                    texts.append("some runs failed; see samples.jsonl")
                for text in texts:
                    notes.setdefault(text, []).append((", ".join(row.head), column))
        return list(notes.items())


Mark = Callable[[Cell], Durability | None]
"""Returns what power cuts have shown of a cell; None if none was made."""


def marked(table: Table, mark: Mark) -> Table:
    """Return the table with a mark at each cell."""
    replace = msgspec.structs.replace
    rows = tuple(
        replace(
            row,
            cells=tuple(cell and replace(cell, durability=mark(cell.cell)) for cell in row.cells),
        )
        for row in table.rows
    )
    return replace(table, rows=rows)


def axis_title(axis: str) -> str:
    """Return the heading of an axis."""
    return axes.find(axis).title or axis


def rearranged(
    plan: Manifest, rows: tuple[str, ...], column: str | None, value: str | None
) -> Manifest:
    """Return the plan with other axes as rows and column, or another value shown.

    Axes that are named nowhere follow the named rows. LabError if there is no such axis or value.
    """
    experiment = plan.experiment
    column = column or next(
        (axis for axis in (experiment.column, *experiment.axes) if axis not in rows), ""
    )
    for axis in (*rows, column):
        if axis not in experiment.axes:
            raise LabError(f"no axis “{axis}”; the run has {', '.join(experiment.axes)}")
    if column in rows or len(set(rows)) != len(rows):
        raise LabError("each axis has one place: name it once, as a row or as the column")
    if value is not None and value not in VALUES:
        raise LabError(f"no value “{value}”; there are {', '.join(VALUES)}")
    standard = rows or tuple(axis for axis in experiment.rows if axis != column)
    others = tuple(axis for axis in experiment.axes if axis not in (*standard, column))
    kept = column == experiment.column
    changed = msgspec.structs.replace(
        experiment,
        rows=(*standard, *others),
        column=column,
        values=(value,) if value else experiment.values,
        relative_to=experiment.relative_to if kept else None,
        # What was published is for its own columns and value.
        reference=experiment.reference if kept and value in (None, experiment.values[0]) else None,
    )
    return msgspec.structs.replace(plan, experiment=changed)


def lay_out(
    plan: Manifest, summaries: list[Summary], reference: Reference | None, control: str = ""
) -> Table:
    """Arrange the cells; rows and columns without a cell in this preset are left out."""
    experiment = plan.experiment
    at = {tuple(summary.cell.values()): summary for summary in summaries}
    columns = tuple(
        value
        for value in experiment.axes[experiment.column]
        if any(s.cell[experiment.column] == value for s in summaries)
    )
    heads = dict.fromkeys(tuple(s.cell[axis] for axis in experiment.rows) for s in summaries)
    rows = []
    for head in heads:
        where = dict(zip(experiment.rows, head, strict=True))
        cells = []
        for column in columns:
            point = where | {experiment.column: column}
            cells.append(at.get(tuple(point[axis] for axis in experiment.axes)))
        rows.append(Row(head, tuple(cells)))
    version = ", ".join(sorted({build.version for build in plan.builds.values()}))
    preset = plan.preset
    amount = workloads.find(experiment.workload).amount(preset)
    clock = "virtual time, " if plan.virtual else ""
    subtitle = (
        f"PostgreSQL {version}, {plan.started[:10]}, {clock}preset {plan.preset_name}: "
        f"{preset.rounds} runs * {amount}, after {preset.warm_up_seconds} s of warm-up"
    )
    return Table(
        experiment.title,
        subtitle,
        experiment.rows,
        columns,
        tuple(rows),
        reference,
        experiment.values,
        (
            "the first column of the row"
            if columns and experiment.relative_to == columns[0]
            else f"{axis_title(experiment.column)} {experiment.relative_to}"
        ),
        experiment.notes,
        control,
        experiment.column,
        plan.titles,
        plan.virtual.words if plan.virtual else "",
    )
