"""Published figures that a table is shown beside: results/reference/*.toml."""

from collections.abc import Collection
from typing import Any

import msgspec

from wallab.errors import LabError
from wallab.files.strict import read_toml
from wallab.record.experiment import Cell
from wallab.record.matrix import reference_file
from wallab.record.number import MOST, Figure

RELATIVE = "relative"
"""The `value` of rows with published ratios."""


class Beside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published table whose columns are others than ours, to be shown beside."""

    title: str
    columns: tuple[str, ...]
    lines: dict[str, tuple[Figure, ...]]
    """Each with a figure for each column."""


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published table."""

    title: str
    unit: str
    row: tuple[dict[str, Any], ...] = ()
    """Each with `at` (axis -> value of the row) and a figure for each column's value.

    A row of another figure than the experiment's first one names it as `value`; where only ratios
    were published, that is `relative`.
    """
    table: tuple[Beside, ...] = ()

    def figure(self, cell: Cell, column: str, value: str | None = None) -> float | None:
        """Return the published figure of the cell, if there is one; the first one by default."""
        for row in self.row:
            if row.get("value") == value and all(
                cell[axis] == at for axis, at in row["at"].items()
            ):
                figure = row.get(cell[column])
                return None if figure is None else float(figure)
        return None


def load(name: str, axes: Collection[str] | None = None) -> Reference:
    """Read the published figures of that name; LabError where they are for other axes."""
    file = reference_file(name)
    reference = read_toml(file, Reference)
    for number, row in enumerate(reference.row, 1):
        if not isinstance(row.get("at"), dict):
            raise LabError(f"{file}: row {number}: expected at = {{ axis = value, … }}")
        if axes is not None and (unknown := [axis for axis in row["at"] if axis not in axes]):
            raise LabError(
                f"{file}: row {number}, at: unknown axis “{unknown[0]}”; expected some of "
                f"{', '.join(axes)}"
            )
        for column, figure in row.items():
            if column not in ("at", "value") and not _is_figure(figure):
                raise LabError(f"{file}: row {number}, {column}: expected a number")
    for number, table in enumerate(reference.table, 1):
        for line, figures in table.lines.items():
            if len(figures) != len(table.columns):
                raise LabError(
                    f"{file}: table {number}, {line}: expected {len(table.columns)} figures"
                )
    return reference


def _is_figure(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= MOST  # type: ignore[operator]
