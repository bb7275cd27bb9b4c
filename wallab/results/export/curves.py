"""Plots with a scale of numbers below: figures along the columns, and figures over time."""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence

import msgspec

from wallab.record.gauges import GAUGES
from wallab.record.samples import Sample
from wallab.record.timeseries import TimeSeries
from wallab.record.values import VALUES
from wallab.results.export import footnotes
from wallab.results.export.plots import interval, step
from wallab.results.export.svg import Drawing
from wallab.results.summary import Summary
from wallab.results.table import Row, Table, axis_title

ROLES = ("accent", "mark", "transferred", "waited", "ink")
"""Colours of lines, in their order."""

_POINTS = 240
"""A line has no more points than this."""


class _Figure(msgspec.Struct, frozen=True):
    """What is drawn of a cell."""

    value: float
    ends: tuple[float, float] | None = None
    """Of its 95% interval."""


class _Line(msgspec.Struct, frozen=True):
    """A line of a plot along the columns."""

    title: str
    role: str
    points: tuple[tuple[int, _Figure], ...]
    """Column's place -> figure."""


_Read = Callable[[Summary], _Figure | None]


def _line(title: str, role: str, row: Row, read: _Read) -> _Line:
    points = [
        (place, figure)
        for place, cell in enumerate(row.cells)
        if cell and (figure := read(cell)) is not None
    ]
    return _Line(title, role, tuple(points))


def _measured(name: str, cell: Summary) -> _Figure | None:
    estimate = cell.values.get(name)
    return _Figure(estimate.mean, interval(estimate)) if estimate else None


def _ratio(cell: Summary) -> _Figure | None:
    if cell.relative is None:
        return None
    return _Figure(cell.relative, None if cell.is_base else cell.relative_interval)


def _published(cell: Summary) -> _Figure | None:
    return None if cell.reference is None else _Figure(cell.reference)


def _published_ratio(cell: Summary) -> _Figure | None:
    return None if cell.reference_relative is None else _Figure(cell.reference_relative)


def _panels(table: Table, relative: bool) -> list[tuple[str, list[_Line]]]:
    """Return a panel for each combination of the row axes but the first, whose values are lines."""
    panels: dict[tuple[str, ...], list[_Line]] = {}
    for row in table.rows:
        lines = panels.setdefault(row.head[1:], [])
        name = table.value_title(table.row_axes[0], row.head[0])
        number = sum(line.role != "muted" for line in lines)
        role = ROLES[number % len(ROLES)]
        read: _Read = _ratio if relative else functools.partial(_measured, table.values[0])
        lines.append(_line(name, role, row, read))
        if table.reference:
            read = _published_ratio if relative else _published
            lines.append(_line(table.reference.title, "muted", row, read))
        ideal = VALUES[table.values[0]].ideal
        if ideal in table.values and not relative and not number:
            lines.append(_line("ideal", "muted", row, functools.partial(_measured, ideal)))
    drawn = []
    for head, lines in panels.items():
        titles = (
            f"{axis_title(axis)} {table.value_title(axis, value)}"
            for axis, value in zip(table.row_axes[1:], head, strict=True)
        )
        if long := [line for line in lines if len(line.points) > 1]:
            drawn.append((", ".join(titles), long))
    return drawn


def _apart(places: list[float], least: float) -> list[float]:
    """Move places that are too close to each other up, keeping their order."""
    order = sorted(range(len(places)), key=lambda at: -places[at])
    moved = list(places)
    for before, after in itertools.pairwise(order):
        moved[after] = min(moved[after], moved[before] - least)
    return moved


def along(table: Table) -> Drawing | None:
    """Draw the figures along the columns; None if the columns are no numbers, or there is nothing.

    Ratios where the experiment has them, else the first figure; a panel for each combination of
    the row axes but the first.
    """
    if not all(column.isdigit() for column in table.columns):
        return None
    relative = any(cell and cell.relative for row in table.rows for cell in row.cells)
    panels = _panels(table, relative)
    if not panels:
        return None
    title = VALUES[table.values[0]].title
    what = f"{title}, relative to {table.relative_to}" if relative else title
    width, height, left, top, right, bottom = 460, 280, 56, 34, 130, 44
    across = min(2, len(panels))
    head = 54
    drawing = Drawing(
        across * width,
        head + math.ceil(len(panels) / across) * height,
        f"{table.title}: {what} along {axis_title(table.columns_axis)}, with 95% intervals",
    )
    drawing.text(8, 20, table.title)
    drawing.text(8, 37, f"{what}; 95% intervals", "muted")
    ends = [
        end
        for _, lines in panels
        for line in lines
        for _, figure in line.points
        for end in (figure.value, *(figure.ends or ()))
    ]
    most = max(ends) or 1.0
    tick = step(most)
    ceiling = tick * math.ceil(most / tick)
    inner_height, inner_width = height - top - bottom, width - left - right
    # Columns that no line reaches, such as CPUs that the machine lacks, are left out.
    last = max(place for _, lines in panels for line in lines for place, _ in line.points)
    room = inner_width / max(1, last)
    for number, (name, lines) in enumerate(panels):
        x0 = left + number % across * width
        y0 = head + number // across * height + top

        def at(value: float, y0: float = y0) -> float:
            return y0 + inner_height * (1 - value / ceiling)

        drawing.text(x0, y0 - 14, name)
        for count in range(round(ceiling / tick) + 1):
            value = count * tick
            drawing.line(x0, at(value), x0 + inner_width, at(value), "rule")
            drawing.text(x0 - 6, at(value) + 4, f"{value:g}", "muted", anchor="end")
        for place, column in enumerate(table.columns[: last + 1]):
            x = x0 + place * room
            drawing.text(x, y0 + inner_height + 17, column, "muted", anchor="middle")
        axis = axis_title(table.columns_axis)
        drawing.text(x0 + inner_width / 2, y0 + inner_height + 34, axis, "muted", anchor="middle")
        labels = _apart([at(line.points[-1][1].value) for line in lines], 15)
        for order, (line, label) in enumerate(zip(lines, labels, strict=True)):
            aside = 3 * (order - (len(lines) - 1) / 2)  # so that intervals can be told apart
            points = [
                (x0 + place * room + aside, at(figure.value)) for place, figure in line.points
            ]
            drawing.path(points, line.role)
            for (x, y), (place, figure) in zip(points, line.points, strict=True):
                words = f"{line.title}, {table.columns[place]}: {figure.value:.3g}"
                drawing.dot(x, y, line.role, words, 3)
                if figure.ends:
                    drawing.line(x, at(figure.ends[1]), x, at(figure.ends[0]), line.role)
            x = x0 + line.points[-1][0] * room + 16
            drawing.dot(x, label, line.role, radius=3)
            drawing.text(x + 7, label + 4, line.title)
    return drawing


def _seen(samples: Sequence[Sample], cell: Summary) -> list[Sample]:
    return [s for s in samples if s.cell == cell.cell and s.series and not s.control]


def _thinned(series: TimeSeries) -> list[tuple[float, float]]:
    points = list(zip(series.seconds, series.figures, strict=True))
    every = math.ceil(len(points) / _POINTS)
    return points[::every] if every > 1 else points


def _full(own: list[Sample]) -> str:
    """Say when what has a limit reached it: the median of the samples."""
    notes = []
    for name in dict.fromkeys(name for sample in own for name in sample.series):
        curves = [s.series[name] for s in own if name in s.series]
        if any(curve.limit is None for curve in curves):
            continue
        times = [after for curve in curves if (after := curve.full_after) is not None]
        if len(times) * 2 > len(curves):
            notes.append(f"full after {statistics.median(times):.1f} s")
    return "; ".join(notes)


def _scales(samples: list[Sample], units: list[str]) -> tuple[float, dict[str, float]]:
    """Return the last second that a row of panels has to show, and each unit's largest figure."""
    longest = max(s.seconds[-1] for sample in samples for s in sample.series.values())
    most = {
        unit: max(
            [
                max((*s.figures, 0.0 if s.full_after is None else s.limit or 0.0))
                for sample in samples
                for name, s in sample.series.items()
                if GAUGES[name].unit == unit
            ],
            default=1.0,
        )
        for unit in units
    }
    return longest or 1.0, {unit: largest or 1.0 for unit, largest in most.items()}


def over_time(table: Table, samples: Sequence[Sample]) -> Drawing | None:
    """Draw each cell's figures over time, a line a sample; None if none were looked at.

    Cells are where the table has them; figures of one unit share an axis, the same in a row.
    """
    rows = []
    for row in table.rows:
        named = zip(table.columns, row.cells, strict=True)
        cells = [(column, _seen(samples, cell)) for column, cell in named if cell]
        if any(own for _, own in cells):
            rows.append((row, cells))
    every = [sample for _, cells in rows for _, own in cells for sample in own]
    if not every:
        return None
    names = [name for name in GAUGES if any(name in sample.series for sample in every)]
    roles = {name: ROLES[place % len(ROLES)] for place, name in enumerate(names)}
    units = list(dict.fromkeys(GAUGES[name].unit for name in names))
    columns = max(len(cells) for _, cells in rows)
    width, plot, left, gap = max(250.0, 740 / columns), 74, 52, 14
    panel = 24 + len(units) * (plot + gap) + 18
    head = 66
    drawing = Drawing(
        max(740.0, columns * width),
        head + len(rows) * (panel + 24),
        f"{table.title}: " + " and ".join(GAUGES[name].title for name in names)
        + " over the seconds of each sample",
    )  # fmt: skip
    drawing.text(8, 20, table.title)
    drawing.text(8, 37, "over the seconds of a sample, a line a sample", "muted")
    x = 8.0
    for name in names:
        drawing.line(x, 54, x + 18, 54, roles[name])
        title = f"{GAUGES[name].title}, {GAUGES[name].unit}"
        drawing.text(x + 23, 58, title, "muted")
        x += 40 + 6.4 * len(title)
    y0 = float(head)
    for row, cells in rows:
        drawing.text(8, y0 + 14, footnotes.row_title(table, row))
        longest, most = _scales([sample for _, own in cells for sample in own], units)
        for place, (column, own) in enumerate(cells):
            x0 = left + place * width
            inner = width - left - 12
            note = _full(own)
            drawing.text(x0, y0 + 34, f"{axis_title(table.columns_axis)} {column}", "muted")
            if note:
                drawing.text(x0 + inner, y0 + 34, note, "mark", anchor="end")
            for number, unit in enumerate(units):
                top = y0 + 42 + number * (plot + gap)
                _draw(drawing, own, unit, roles, (x0, top, inner, plot), longest, most[unit])
            bottom = y0 + 42 + len(units) * (plot + gap)
            drawing.text(x0, bottom + 2, "0", "muted", anchor="middle")
            drawing.text(x0 + inner, bottom + 2, f"{longest:.0f} s", "muted", anchor="end")
        y0 += panel + 24
    return drawing


def _draw(
    drawing: Drawing,
    own: list[Sample],
    unit: str,
    roles: dict[str, str],
    box: tuple[float, float, float, float],
    longest: float,
    most: float,
) -> None:
    """Draw the samples' figures of one unit into a box (left, top, width, height)."""
    left, top, width, height = box
    for value in (0.0, most):
        y = top + height * (1 - value / most)
        drawing.line(left, y, left + width, y, "rule")
        drawing.text(
            left - 6, y + 4, f"{value:.3g}" if most < 10 else f"{value:.0f}", "muted", anchor="end"
        )
    for sample in own:
        for name, series in sample.series.items():
            if GAUGES[name].unit != unit:
                continue
            points = [
                (left + width * second / longest, top + height * (1 - figure / most))
                for second, figure in _thinned(series)
            ]
            if len(points) > 1:
                drawing.path(points, roles[name])
            elif points:
                drawing.dot(*points[0], roles[name])
