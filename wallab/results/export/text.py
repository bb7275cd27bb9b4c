"""The table as plain text, in the layout that the thread used."""

import re
import textwrap
from collections.abc import Callable, Sequence

import msgspec

from wallab.record.reference import Beside
from wallab.record.values import VALUES
from wallab.results import evidence
from wallab.results.export import footnotes, grid, ratios, variants
from wallab.results.summary import Summary
from wallab.results.table import Table, axis_title
from wallab.results.within import Within

Show = Callable[[Summary], str]


class Line(msgspec.Struct, frozen=True):
    """A line of a row: its name, and what stands there of each cell."""

    label: str
    show: Show


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


def relative(cell: Summary) -> str:
    """TPS as a share of the row's reference column."""
    return f"{cell.relative:.3f}" if cell.relative is not None else ""


def relative_interval(cell: Summary) -> str:
    """The 95% interval of the share, from the ratios within rounds."""
    if cell.relative_interval is None or cell.is_base:
        return ""
    low, high = cell.relative_interval
    return f"{low:.3f}-{high:.3f}"


def published_relative(cell: Summary) -> str:
    """The published figure as a share of its row's."""
    return f"{cell.reference_relative:.3f}" if cell.reference_relative is not None else ""


def durability(cell: Summary) -> str:
    """What power cuts have shown."""
    return cell.durability.mark if cell.durability else ""


class Figure(msgspec.Struct, frozen=True):
    """One of a table's values: how each part of it is written, of any cell."""

    title: str
    mean: Show
    interval: Show
    published: Show

    def __call__(self, cell: Summary) -> str:
        """Write mean and interval, and in brackets what was published."""
        published = self.published(cell)
        parts = (self.mean(cell), self.interval(cell), published and f"[{published}]")
        return " ".join(filter(None, parts))


def figures(table: Table) -> list[Figure]:
    """Return what the table shows of each cell, in its order; the first one bears the warnings."""
    return [_figure(name, leading=not place) for place, name in enumerate(table.values)]


def _figure(name: str, *, leading: bool) -> Figure:
    value = VALUES[name]

    def mean(cell: Summary) -> str:
        mark = "!" if leading and (cell.warnings or cell.failed) else ""
        if name not in cell.values:
            return tps(cell) if leading and cell.tps is None else ""
        return f"{cell.values[name].mean:.{value.digits}f}{mark}"

    def interval(cell: Summary) -> str:
        if name not in cell.values:
            return ""
        half_width = cell.values[name].half_width
        return "one run" if half_width is None else f"± {half_width:.{value.digits}f}"

    def published(cell: Summary) -> str:
        figure = cell.reference if leading else cell.references.get(name)
        return "" if figure is None else f"{figure:.{value.digits}f}"

    return Figure(value.title, mean, interval, published)


def lines(table: Table, figures: Sequence[Figure]) -> list[Line]:
    """Return a line for each part of the figures, what was published only where something was."""
    several: list[Line] = []
    for figure in figures:
        several += [Line(figure.title, figure.mean), Line("95% interval", figure.interval)]
        if table.reference:
            several.append(Line(table.reference.title, figure.published))
    return several


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


def _grid(table: Table, lines: Sequence[Line], *, labelled: bool = False) -> str:
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
        titles = table.heads(row)
        for number, line in enumerate(lines):
            words = [line.show(cell) if cell else "" for cell in row.cells]
            if number and not any(words):
                continue
            head = titles if number == 0 else [""] * len(titles)
            if labelled:
                head = [*head, line.label]
            elif number:
                head = [*head[:-1], line.label]
            body.append([*head, *words])
        breaks.append(len(body))
    several = len(lines) > 1
    return grid.lay_out(body, len(left[-1]), breaks if several else breaks[:1])


def _reasons(explained: list[tuple[str, list[tuple[str, str]]]]) -> str:
    """The footnotes, a paragraph a cell."""
    width = max(len(column) for _, reasons in explained for column, _ in reasons)
    lines = []
    for row, reasons in explained:
        lines.append(row)
        for column, reason in reasons:
            lead = f"  {column.ljust(width)}  "
            lines += textwrap.wrap(
                reason, 110, initial_indent=lead, subsequent_indent=" " * len(lead)
            )
    return "\n".join(lines)


def _beside(published: Beside) -> str:
    """A published table as it was printed: a line a figure."""
    lines = [[name, *(f"{f:g}" for f in figures)] for name, figures in published.lines.items()]
    return grid.lay_out([["", *published.columns], *lines], 1)


def _variants(within: Within) -> str:
    """Variants beside those that they are built on, a line a cell, and what a verdict takes."""
    lines = [variants.heads(within), *(variants.line(within, pair) for pair in within.pairs)]
    changed = "".join(
        textwrap.fill(f"{name}: {words}", 110, subsequent_indent="  ") + "\n"
        for name, words in variants.changed(within)
    )
    return f"{grid.lay_out(lines, len(lines[0]))}\n{ratios.about_verdicts(within)}\n{changed}"


def render(table: Table) -> str:
    """Return the table, the published one beside it, and what explains the figures."""
    parts = [table.title, table.subtitle, ""]
    if table.values == ("tps",):
        cuts = Line("power cuts", durability)
        parts += ["TPS", _grid(table, [*lines(table, figures(table)), cuts]), ""]
    else:
        parts += [_grid(table, lines(table, figures(table)), labelled=True), ""]
    if any(cell.relative is not None for cell in table.cells):
        ratios = [Line("", relative), Line("95% interval", relative_interval)]
        if table.reference:
            ratios.append(Line(table.reference.title, published_relative))
        title = VALUES[table.values[0]].title
        parts += [f"{title} relative to {table.relative_to}", _grid(table, ratios), ""]
    if table.within and table.within.pairs:
        parts += [variants.title(table.within), _variants(table.within)]
    counted = [
        Line("", lambda _: ""),
        Line("WAL open", _flags),
        Line("writes/tx", _evidence("writes_per_transaction")),
        Line("kB/write", _evidence("bytes_per_write", 1, 1024)),
        Line("syncs/tx", _evidence("syncs_per_transaction")),
        Line("drive writes/tx", _evidence("drive_writes_per_transaction")),
        Line("drive flushes/tx", _evidence("drive_flushes_per_transaction")),
        Line("cache hits %", _evidence("cache_hits", 0, 0.01)),
        Line("revolutions/tx", _evidence("revolutions_per_transaction")),
        Line("heads: % waiting", _head("waited")),
        Line("heads: % moving", _head("moved")),
        Line("heads: % transf.", _head("transferred")),
    ]
    if any(cell.evidence for cell in table.cells):
        parts += [
            "What the server, the kernel and the WAL drive counted "
            "(open flags: D O_DIRECT, S O_SYNC, Y O_DSYNC)",
            _grid(table, counted),
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
