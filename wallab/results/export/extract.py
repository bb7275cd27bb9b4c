"""A part of a run's table as Markdown, as a document shows it: some rows, columns and figures."""

from collections.abc import Callable
from typing import Literal

import msgspec

from wallab.errors import LabError
from wallab.record.reference import Beside
from wallab.record.values import VALUES
from wallab.results import evidence
from wallab.results.evidence import Evidence
from wallab.results.export.markdown import escape
from wallab.results.intervals import Estimate
from wallab.results.summary import Summary
from wallab.results.table import Table, axis_title

Part = Literal["mean", "half", "ratio", "interval", "published", "published-ratio", "cuts"]
"""What a figure is shown with; all but the first two and `published` go with the first one alone:
its ratio to the row's reference column, alone or with its interval, and what power cuts showed."""


class Excerpt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a table is shown."""

    only: dict[str, tuple[str, ...]] = {}
    """Axis -> its values, in this order where it makes the columns."""
    values: tuple[str, ...] = ()
    """Of VALUES or COUNTED, a line of a row each; without any, the experiment's first."""
    parts: tuple[Part, ...] = ("mean", "half", "published")


def _shares_of_head(counted: Evidence) -> str:
    shares = evidence.shares_of_head(counted)
    names = ("waited", "moved", "transferred")
    return " / ".join(f"{100 * shares[name]:.0f}" for name in names) + " %" if shares else ""


def _number(value: float | None, unit: float = 1.0, digits: int = 2) -> str:
    return "" if value is None else f"{value / unit:.{digits}f}"


COUNTED: dict[str, tuple[str, Callable[[Evidence], str]]] = {
    "writes": (
        "WAL writes per transaction",
        lambda counted: _number(counted.writes_per_transaction),
    ),
    "write-kb": ("kB per WAL write", lambda counted: _number(counted.bytes_per_write, 1024, 1)),
    "drive-writes": (
        "drive writes per transaction",
        lambda counted: _number(counted.drive_writes_per_transaction),
    ),
    "revolutions": (
        "revolutions waited per transaction",
        lambda counted: _number(counted.revolutions_per_transaction),
    ),
    "heads": ("of the time, the heads waited / moved / transferred", _shares_of_head),
}
"""What was counted of a cell: its title, and how it is written."""


def _order(
    title: str, axis: str, names: tuple[str, ...], only: tuple[str, ...] | None
) -> list[str]:
    """Return the axis's values that are wanted, in their order; LabError for one it has not."""
    known = list(dict.fromkeys(names))
    for value in only or ():
        if value not in known:
            raise LabError(f"{axis}={value}: {title} has {', '.join(known)}")
    return known if only is None else list(only)


def narrowed(table: Table, only: dict[str, tuple[str, ...]]) -> Table:
    """Return the table with these values of these axes, its rows grouped by axis after axis.

    LabError for an axis or a value that the table does not have.
    """
    axes = (*table.row_axes, table.columns_axis)
    for axis in only:
        if axis not in axes:
            raise LabError(f"no axis “{axis}”; {table.title} has {', '.join(axes)}")
    wanted = only.get(table.columns_axis)
    columns = _order(table.title, table.columns_axis, table.columns, wanted)
    places = [table.columns.index(column) for column in columns]
    orders = [
        _order(table.title, axis, tuple(row.head[at] for row in table.rows), only.get(axis))
        for at, axis in enumerate(table.row_axes)
    ]
    rows = [
        msgspec.structs.replace(row, cells=tuple(row.cells[place] for place in places))
        for row in table.rows
        if all(value in order for value, order in zip(row.head, orders, strict=True))
    ]
    rows.sort(key=lambda row: [order.index(v) for v, order in zip(row.head, orders, strict=True)])
    return msgspec.structs.replace(table, columns=tuple(columns), rows=tuple(rows))


def _estimate(cell: Summary, name: str) -> Estimate | None:
    return cell.values.get(name) or (cell.tps if name == "tps" else None)


def _half(estimate: Estimate, digits: int) -> str:
    return "one run" if estimate.half_width is None else f"± {estimate.half_width:.{digits}f}"


def _ratio(cell: Summary, *, interval: bool) -> str:
    """Write the ratio to the row's reference column, which itself has none."""
    if cell.relative is None or cell.is_base:
        return ""
    between = cell.relative_interval if interval else None
    return f"{cell.relative:.2f}" + (f" ({between[0]:.2f}–{between[1]:.2f})" if between else "")


def _published(cell: Summary, name: str, first: bool, parts: tuple[Part, ...]) -> str:
    """Write what was published of the figure, in brackets."""
    figure = cell.references.get(name, cell.reference if first else None)
    words = []
    if "published" in parts and figure is not None:
        words.append(f"{figure:.{VALUES[name].digits}f}")
    ratio = cell.reference_relative if first and not cell.is_base else None
    if "published-ratio" in parts and ratio is not None:
        words.append(f"× {ratio:.2f}" if words else f"{ratio:.2f}")
    return f"[{' '.join(words)}]" if words else ""


def _figure(cell: Summary, name: str, first: bool, parts: tuple[Part, ...]) -> str:
    """Write one figure of a cell with its parts; why there is none, if it is the first one."""
    estimate = _estimate(cell, name)
    if estimate is None:
        return ("(N/A)" if cell.state == "N/A" else cell.state) if first else ""
    digits = VALUES[name].digits
    words = []
    if "mean" in parts:
        mark = "!" if first and (cell.warnings or cell.failed) else ""
        words.append(f"{estimate.mean:.{digits}f}{mark}")
    if "half" in parts:
        words.append(_half(estimate, digits))
    if first and ("ratio" in parts or "interval" in parts):
        ratio = _ratio(cell, interval="interval" in parts)
        words.append(f"× {ratio}" if ratio and words else ratio or ("" if words else "1"))
    words.append(_published(cell, name, first, parts))
    mark = (
        f", {escape(cell.durability.mark)}" if first and "cuts" in parts and cell.durability else ""
    )
    return " ".join(filter(None, words)) + mark


def lines_of(heads: list[str], left: int, rows: list[list[str]]) -> list[str]:
    """Return a Markdown table, whose columns but for so many on the left are figures.

    A line whose figures are all empty is left out.
    """
    sides = ["---"] * left + ["---:"] * (len(heads) - left)
    kept = [row for row in rows if any(row[left:])]
    return [f"| {' | '.join(cells)} |" for cells in (heads, sides, *kept)]


def legend(table: Table, choice: Excerpt) -> list[str]:
    """Say what the parts of a cell are, a sentence each."""
    parts, sentences = set(choice.parts), []
    if "half" in parts:
        sentences.append("±: half of the 95% interval")
    if {"ratio", "interval"} & parts:
        each = "×" if "mean" in parts else "Each"
        interval = ", and its 95% interval" if "interval" in parts else ""
        sentences.append(f"{each}: relative to {table.relative_to}{interval}")
    if table.reference and {"published", "published-ratio"} & parts:
        sentences.append(f"In brackets: {table.reference.title}")
    if "cuts" in parts:
        sentences.append(
            "safe n: n power cuts without a loss, and what probability of one they still allow at "
            "95%; LOST k/n: k of n cuts lost or broke something"
        )
    cells = [cell for row in table.rows for cell in row.cells if cell]
    if "mean" in parts and any(cell.warnings or cell.failed for cell in cells):
        sentences.append("!: with a warning, which the run's own table spells out")
    return sentences


def _title(name: str) -> str:
    return COUNTED[name][0] if name in COUNTED else VALUES[name].title


def render(table: Table, choice: Excerpt, run: str) -> str:
    """Return the chosen part of the run's table, and below it what it is and how to read it.

    An axis of which one value is chosen has no column. LabError for an axis, a value or a figure
    that the run does not have.
    """
    names = choice.values or table.values[:1]
    for name in names:
        if name not in COUNTED and name not in table.values:
            known = (*table.values, *COUNTED)
            raise LabError(f"no figure “{name}”; {table.title} has {', '.join(known)}")
    table = narrowed(table, choice.only)
    fixed = [axis for axis, values in choice.only.items() if len(values) == 1]
    left = [at for at, axis in enumerate(table.row_axes) if axis not in fixed]
    labels = [[_title(name)] if len(names) > 1 else [] for name in names]

    def words(cell: Summary | None, name: str) -> str:
        if cell is None:
            return ""
        if name in COUNTED:
            return COUNTED[name][1](cell.evidence) if cell.evidence else ""
        return _figure(cell, name, name == table.values[0], choice.parts)

    rows = []
    for row in table.rows:
        titles = [table.value_title(table.row_axes[at], row.head[at]) for at in left]
        for label, name in zip(labels, names, strict=True):
            figures = [words(cell, name) for cell in row.cells]
            rows.append([*map(escape, [*titles, *label]), *figures])
            titles = [""] * len(titles)
    columns = [table.value_title(table.columns_axis, column) for column in table.columns]
    heads = [
        *(axis_title(table.row_axes[at]) for at in left),
        *([""] if labels[0] else []),
        *columns,
    ]
    sentences = [table.subtitle, f"Columns: {axis_title(table.columns_axis)}"]
    sentences += [
        f"{axis_title(axis)}: {table.value_title(axis, choice.only[axis][0])}" for axis in fixed
    ]
    sentences += [] if labels[0] else [_title(names[0])]
    about = ". ".join([*sentences, *legend(table, choice)])
    tabulated = lines_of(list(map(escape, heads)), len(heads) - len(columns), rows)
    return "\n".join([*tabulated, "", f"`{run}`: {escape(about)}."])


def published(table: Beside) -> str:
    """Return a published table."""
    rows = [
        [escape(name), *(f"{figure:g}" for figure in figures)]
        for name, figures in table.lines.items()
    ]
    return "\n".join(lines_of([escape(table.title), *map(escape, table.columns)], 1, rows))
