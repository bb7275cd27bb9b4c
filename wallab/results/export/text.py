"""The table as plain text, in the layout that the thread used."""

import re
import textwrap
from collections.abc import Callable

from wallab.record.reference import Beside
from wallab.record.values import VALUES
from wallab.results import evidence
from wallab.results.export import footnotes, grid
from wallab.results.summary import Summary
from wallab.results.table import Table, axis_title, value_title

Show = Callable[[Summary], str]


def header(column: str) -> list[str]:
    """Break a column's name as the thread did: fsync_/direct, fsync=/false, fdata/sync."""
    if column == "fdatasync":
        return ["fdata", "sync"]
    return [part for part in re.split(r"(?<=[_=])", column) if part]


def tps(cell: Summary) -> str:
    """The mean, or why there is none."""
    if cell.tps is None:
        return {"N/A": "(N/A)", "failed": "failed", "not run": "not run"}.get(cell.state, "?")
    mark = "!" if cell.warnings or cell.failed else ""
    return f"{cell.tps.mean:.1f}{mark}"


def spread(cell: Summary) -> str:
    """Half the width of the 95% interval."""
    if cell.tps is None:
        return ""
    if cell.tps.half_width is None:
        return "one run"
    return f"± {cell.tps.half_width:.1f}"


def relative(cell: Summary) -> str:
    """TPS as a share of the row's reference column."""
    return f"{cell.relative:.3f}" if cell.relative is not None else ""


def relative_interval(cell: Summary) -> str:
    """The 95% interval of the share, from the ratios within rounds."""
    if cell.relative_interval is None or cell.is_base:
        return ""
    low, high = cell.relative_interval
    return f"{low:.3f}-{high:.3f}"


def published(cell: Summary) -> str:
    """The published figure."""
    return f"{cell.reference:.1f}" if cell.reference is not None else ""


def published_relative(cell: Summary) -> str:
    """The published figure as a share of its row's."""
    return f"{cell.reference_relative:.3f}" if cell.reference_relative is not None else ""


def durability(cell: Summary) -> str:
    """What power cuts have shown."""
    return cell.durability.mark if cell.durability else ""


def values(table: Table) -> list[tuple[str, Show]]:
    """Return the lines of a row: each figure of the experiment, its interval, the published one."""

    def mean(name: str) -> Show:
        def show(cell: Summary) -> str:
            mark = "!" if name == table.values[0] and (cell.warnings or cell.failed) else ""
            found = cell.values.get(name)
            if found is None:
                return tps(cell) if name == table.values[0] and cell.tps is None else ""
            return f"{found.mean:.{VALUES[name].digits}f}{mark}"

        return show

    def half(name: str) -> Show:
        def show(cell: Summary) -> str:
            found = cell.values.get(name)
            if found is None:
                return ""
            if found.half_width is None:
                return "one run"
            return f"± {found.half_width:.{VALUES[name].digits}f}"

        return show

    def source(name: str) -> Show:
        def show(cell: Summary) -> str:
            figure = cell.references.get(name)
            return "" if figure is None else f"{figure:.{VALUES[name].digits}f}"

        return show

    lines: list[tuple[str, Show]] = []
    for name in table.values:
        lines += [(VALUES[name].title, mean(name)), ("95% interval", half(name))]
        if table.reference:
            lines.append((table.reference.title, source(name)))
    return lines


def first(table: Table) -> tuple[Show, Show, Show]:
    """Return how the table's first figure is shown: its mean, its interval, the published one."""
    if table.values == ("tps",):
        return tps, spread, published
    lines = values(table)
    nothing: Show = lambda _: ""  # noqa: E731
    return lines[0][1], lines[1][1], lines[2][1] if table.reference else nothing


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _evidence(name: str, digits: int = 2, unit: float = 1.0) -> Show:
    def show(cell: Summary) -> str:
        value = getattr(cell.evidence, name) if cell.evidence else None
        return _number(value / unit if value is not None else None, digits)

    return show


def _head(what: str) -> Show:
    def show(cell: Summary) -> str:
        shares = evidence.shares_of_head(cell.evidence) if cell.evidence else None
        return _number(100 * shares[what], 0) if shares else ""

    return show


def _flags(cell: Summary) -> str:
    names = {
        "none": "buffer",
        "O_DIRECT": "D",
        "O_SYNC": "S",
        "O_DSYNC": "Y",
        "O_DIRECT|O_SYNC": "D+S",
        "O_DIRECT|O_DSYNC": "D+Y",
    }
    return "/".join(names.get(f, f) for f in cell.evidence.open_flags) if cell.evidence else ""


def _grid(table: Table, lines: list[tuple[str, Show]], *, labelled: bool = False) -> str:
    """A grid with several lines a row; a row's lines that are empty are left out.

    Labelled: the lines' names have a column of their own, else they stand in the last one on the
    left, which then has no name for the first.
    """
    heads = [header(column) for column in table.columns]
    depth = max(map(len, heads))
    extra = [""] if labelled else []
    left: list[list[str]] = [[""] * len(table.row_axes) + extra for _ in range(depth)]
    left[-1] = [axis_title(axis) for axis in table.row_axes] + extra
    body: list[list[str]] = [
        [*left[i], *(([""] * (depth - len(head)) + head)[i] for head in heads)]
        for i in range(depth)
    ]
    breaks = [len(body)]
    for row in table.rows:
        titles = [
            value_title(axis, value) for axis, value in zip(table.row_axes, row.head, strict=True)
        ]
        for number, (label, show) in enumerate(lines):
            shown = [show(cell) if cell else "" for cell in row.cells]
            if number and not any(shown):
                continue
            head = titles if number == 0 else [""] * len(titles)
            if labelled:
                head = [*head, label]
            elif number:
                head = [*head[:-1], label]
            body.append([*head, *shown])
        breaks.append(len(body))
    several = len(lines) > 1
    return grid.lay_out(body, len(left[-1]), breaks if several else breaks[:1])


def _reasons(explained: list[tuple[str, list[tuple[str, str]]]]) -> str:
    """The footnotes, a paragraph a cell."""
    width = max(len(column) for _, reasons in explained for column, _ in reasons)
    lines = []
    for row, reasons in explained:
        lines.append(row)
        for column, said in reasons:
            lead = f"  {column.ljust(width)}  "
            lines += textwrap.wrap(
                said, 110, initial_indent=lead, subsequent_indent=" " * len(lead)
            )
    return "\n".join(lines)


def _beside(published: Beside) -> str:
    """A published table as it was printed: a line a figure."""
    lines = [[name, *(f"{one:g}" for one in figures)] for name, figures in published.lines.items()]
    return grid.lay_out([["", *published.columns], *lines], 1)


def render(table: Table) -> str:
    """Return the table, the published one beside it, and what explains the figures."""
    parts = [table.title, table.subtitle, ""]
    if table.values == ("tps",):
        lines: list[tuple[str, Show]] = [("", tps), ("95% interval", spread)]
        if table.reference:
            lines.append((table.reference.title, published))
        lines.append(("power cuts", durability))
        parts += ["TPS", _grid(table, lines), ""]
    else:
        parts += [_grid(table, values(table), labelled=True), ""]
    if any(cell and cell.relative is not None for row in table.rows for cell in row.cells):
        ratios: list[tuple[str, Show]] = [("", relative), ("95% interval", relative_interval)]
        if table.reference:
            ratios.append((table.reference.title, published_relative))
        title = VALUES[table.values[0]].title
        parts += [f"{title} relative to {table.relative_to}", _grid(table, ratios), ""]
    counted: list[tuple[str, Show]] = [
        ("WAL open", _flags),
        ("writes/tx", _evidence("writes_per_transaction")),
        ("kB/write", _evidence("bytes_per_write", 1, 1024)),
        ("syncs/tx", _evidence("syncs_per_transaction")),
        ("drive writes/tx", _evidence("drive_writes_per_transaction")),
        ("drive flushes/tx", _evidence("drive_flushes_per_transaction")),
        ("cache hits %", _evidence("cache_hits", 0, 0.01)),
        ("revolutions/tx", _evidence("revolutions_per_transaction")),
        ("heads: % waiting", _head("waited")),
        ("heads: % moving", _head("moved")),
        ("heads: % transf.", _head("transferred")),
    ]
    if any(cell and cell.evidence for row in table.rows for cell in row.cells):
        parts += [
            "What the server, the kernel and the WAL drive counted "
            "(open flags: D O_DIRECT, S O_SYNC, Y O_DSYNC)",
            _grid(table, [("", lambda _: ""), *counted]),
            "",
        ]
    if explained := footnotes.by_row(table):
        parts += [footnotes.TITLE, _reasons(explained), ""]
    for beside in table.reference.table if table.reference else ():
        parts += [beside.title, _beside(beside), ""]
    notes = footnotes.remarks(table)
    for text, where in table.notes:
        places = "; ".join(f"{row}, {column}" for row, column in where[:6])
        more = f" and {len(where) - 6} more" if len(where) > 6 else ""
        notes.append(f"! {text}: {places}{more}")
    return "\n".join([*parts, *notes]) + "\n"
