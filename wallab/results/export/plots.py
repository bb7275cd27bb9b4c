"""Plots of a run: bars with intervals, the heads' time, drift over the rounds, a cell's course."""

import itertools
import math
import statistics

import msgspec

from wallab.record.samples import Sample
from wallab.record.values import VALUES
from wallab.record.values import of as value_of
from wallab.results import evidence
from wallab.results.export import footnotes, text
from wallab.results.export.svg import Drawing
from wallab.results.intervals import Estimate
from wallab.results.summary import Summary
from wallab.results.table import Table

HEADS = ("waited", "moved", "transferred", "idle")
"""What the heads do, in the order of the plots."""

_LEFT, _BAR, _RIGHT, _STEP = 190, 420, 130, 20


def figure(table: Table, cell: Summary) -> Estimate | None:
    """Return the cell's figure that the plots show: the first of its table."""
    return cell.values.get(table.values[0])


def interval(estimate: Estimate | None) -> tuple[float, float] | None:
    """Return the ends of the 95% interval; None without one."""
    if estimate is None or estimate.half_width is None:
        return None
    return max(0.0, estimate.mean - estimate.half_width), estimate.mean + estimate.half_width


class _Scale(msgspec.Struct, frozen=True):
    """An axis of bars."""

    least: float
    """At its left end: 0, or a power of ten where it is logarithmic."""
    most: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Return how many units from the left end the value is."""
        if not self.least:
            return _BAR * value / self.most
        decades = math.log10(max(value, self.least) / self.least)
        return _BAR * decades / math.log10(self.most / self.least)


def _scale(table: Table, *, logarithmic: bool) -> _Scale:
    """Return an axis for all that the bars have to show."""
    figures = [cell.reference or 0.0 for cell in table.cells]
    ends = [1.0]
    for estimate in filter(None, (figure(table, cell) for cell in table.cells)):
        figures.append(estimate.mean)
        ends += interval(estimate) or ()
    most = max(*ends, *figures)
    if not logarithmic:
        distance = step(most)
        ticks = tuple(tick * distance for tick in range(int(most / distance) + 1))
        return _Scale(0.0, most, ticks)
    smallest = max(min(filter(None, figures), default=1.0), most / 1e9)
    first = math.floor(math.log10(smallest))
    decades = range(first, math.floor(math.log10(most)) + 1)
    return _Scale(10.0**first, most * 1.001, tuple(10.0**power for power in decades))


def step(largest: float, parts: int = 5) -> float:
    """Return a round distance (1, 2 or 5 times a power of ten) for so many parts of an axis."""
    power: float = 10.0 ** math.floor(math.log10(largest / parts))
    return next(f * power for f in (1, 2, 5, 10) if f * power * parts >= largest)


class _Bar(msgspec.Struct, frozen=True):
    """A cell that was measured."""

    number: int
    """Among the table's cells, from 0."""
    column: str
    cell: Summary


def _rows(table: Table) -> list[tuple[str, list[_Bar]]]:
    """Return each row's name and its cells that were measured."""
    numbers = itertools.count()
    return [
        (
            footnotes.row_title(table, row),
            [
                _Bar(number, column, cell)
                for column, cell in zip(table.columns, row.cells, strict=True)
                if cell and (number := next(numbers)) is not None and figure(table, cell)
            ],
        )
        for row in table.rows
    ]


def _frame(table: Table, what: str, label: str) -> tuple[Drawing, float]:
    """Return a drawing for a bar a measured cell, and where its first row begins."""
    bars = sum(len(cells) for _, cells in _rows(table))
    height = 74 + bars * _STEP + len(table.rows) * 30
    drawing = Drawing(_LEFT + _BAR + _RIGHT, height, label)
    drawing.text(8, 20, table.title)
    drawing.text(8, 37, table.subtitle, "muted")
    drawing.text(_LEFT, 60, what, "muted")
    return drawing, 74


def bars(table: Table, *, logarithmic: bool = False) -> Drawing:
    """Draw a bar for each measured cell, with its interval and the published figure."""
    title = VALUES[table.values[0]].title
    what = f"{title}, 95% interval"
    if table.reference:
        what += f"; ● {table.reference.title}"
    drawing, y = _frame(table, what, f"{table.title}: {title} of each cell with 95% intervals")
    scale = _scale(table, logarithmic=logarithmic)
    for place, (name, cells) in enumerate(_rows(table)):
        with drawing.group(row=place):
            y += 22
            drawing.text(8, y, name)
            for tick in scale.ticks:
                x = _LEFT + scale.place(tick)
                drawing.line(x, y + 8, x, y + 8 + len(cells) * _STEP, "rule")
                drawing.text(x, y, f"{tick:g}", "muted", anchor="middle")
            y += 8
            for bar in cells:
                with drawing.group(cell=bar.number):
                    _bar(drawing, table, bar, scale, y)
                y += _STEP
    return drawing


def _bar(drawing: Drawing, table: Table, bar: _Bar, scale: _Scale, y: float) -> None:
    """Draw a cell's figure, its interval and what was published of it, below y."""
    estimate, published = figure(table, bar.cell), bar.cell.reference
    assert estimate
    middle = y + _STEP / 2
    drawing.text(_LEFT - 8, middle + 4, bar.column, "muted", anchor="end")
    drawing.rect(_LEFT, y + 4, scale.place(estimate.mean), _STEP - 8, "accent")
    end = max(estimate.mean, published or 0)
    if ends := interval(estimate):
        end = max(end, ends[1])
        low, high = (_LEFT + scale.place(value) for value in ends)
        drawing.line(low, middle, high, middle, "ink")
        drawing.line(low, middle - 4, low, middle + 4, "ink")
        drawing.line(high, middle - 4, high, middle + 4, "ink")
    if published is not None:
        drawing.dot(_LEFT + scale.place(published), middle, "mark", radius=3.5)
    first = text.figures(table)[0]
    words = " ".join(filter(None, (first.mean(bar.cell), first.interval(bar.cell))))
    drawing.text(_LEFT + scale.place(end) + 8, middle + 4, words)


def heads(table: Table) -> Drawing:
    """Draw how the heads of the WAL drive spent the measured time of each cell."""
    drawing, y = _frame(
        table,
        "the heads of the WAL drive, share of the measured time",
        f"{table.title}: how the heads of the WAL drive spent their time",
    )
    x = float(_LEFT + 320)
    for role in HEADS:
        drawing.rect(x, 52, 9, 9, role)
        drawing.text(x + 13, 60, role, "muted")
        x += 24 + 6.2 * len(role)
    for place, (title, cells) in enumerate(_rows(table)):
        with drawing.group(row=place):
            y += 22
            drawing.text(8, y, title)
            y += 8
            for bar in cells:
                with drawing.group(cell=bar.number):
                    _stack(drawing, bar, y)
                y += _STEP
    return drawing


def has_heads(table: Table) -> bool:
    """Whether it is known of a cell what the heads did."""
    return any(c.evidence and evidence.shares_of_head(c.evidence) for c in table.cells)


def _stack(drawing: Drawing, bar: _Bar, y: float) -> None:
    """Draw what the heads did while a cell was measured, below y."""
    drawing.text(_LEFT - 8, y + _STEP / 2 + 4, bar.column, "muted", anchor="end")
    counted = bar.cell.evidence
    if not counted or (shares := evidence.shares_of_head(counted)) is None:
        return
    at = float(_LEFT)
    for role in HEADS:
        width = shares[role] * _BAR
        drawing.rect(at, y + 3, width, _STEP - 6, role)
        at += width
    drawing.text(at + 8, y + _STEP / 2 + 4, f"{1 - shares['idle']:.0%} at work")


def drift(samples: list[Sample], name: str) -> Drawing:
    """Draw each sample relative to its cell's mean, in the order in which they were measured.

    `name` is the figure's, one of wallab.record.values.
    """
    measured = [
        (sample, figure)
        for sample in sorted(samples, key=lambda s: (s.round, s.position))
        if (figure := value_of(sample, name)) is not None and not sample.control
    ]
    by_cell: dict[tuple[str, ...], list[float]] = {}
    for sample, figure in measured:
        by_cell.setdefault(tuple(sample.cell.values()), []).append(figure)
    means = {cell: statistics.fmean(figures) for cell, figures in by_cell.items()}
    values = [
        (sample, figure, figure / mean)
        for sample, figure in measured
        if (mean := means[tuple(sample.cell.values())])
    ]
    far = max([0.1, *(abs(value - 1) for _, _, value in values)])
    width, height, left, top = 740, 230, 48, 12
    drawing = Drawing(
        width,
        height,
        "Each sample relative to the mean of its cell, in the order measured, with the median of "
        f"each round; the farthest sample is {far:.0%} away",
    )
    inner = height - top - 34

    def at(value: float) -> float:
        return top + inner * (1 - (value - 1 + far) / (2 * far))

    for share in (-far, -far / 2, 0.0, far / 2, far):
        drawing.line(
            left, at(1 + share), width - 8, at(1 + share), "muted" if not share else "rule"
        )
        drawing.text(left - 6, at(1 + share) + 4, f"{share:+.0%}", "muted", anchor="end")
    room = (width - left - 8) / max(1, len(values))
    begin = 0
    rounds = sorted({sample.round for sample, _, _ in values})
    for number in rounds:
        of_round = [value for sample, _, value in values if sample.round == number]
        end = begin + len(of_round)
        middle = statistics.median(of_round)
        x1, x2 = left + begin * room, left + end * room
        if begin:
            drawing.line(x1, top, x1, top + inner, "rule")
        for place, (sample, figure, value) in enumerate(values[begin:end], begin):
            cell = ", ".join(sample.cell.values())
            words = f"{figure:.{VALUES[name].digits}f} {VALUES[name].title}"
            drawing.dot(
                left + (place + 0.5) * room,
                at(value),
                "accent",
                f"{cell}, round {number}: {words}, {value - 1:+.1%}",
            )
        drawing.line(x1, at(middle), x2, at(middle), "mark")
        if len(rounds) <= 12 or number % 5 == 0:
            drawing.text((x1 + x2) / 2, height - 20, str(number), "muted", anchor="middle")
        begin = end
    drawing.text(left + (width - left) / 2, height - 4, "round", "muted", anchor="middle")
    return drawing


def course(samples: list[Sample]) -> Drawing | None:
    """Draw the TPS of each second of a cell's samples; None if none lasted two."""
    runs = [
        (sample.round, list(sample.figures.course.per_second))
        for sample in samples
        if sample.figures and sample.figures.course and sample.figures.course.per_second
    ]
    longest = max((len(seconds) for _, seconds in runs), default=0)
    if longest < 2:
        return None
    most = max(1, *(count for _, seconds in runs for count in seconds))
    width, height, left, top = 360, 110, 46, 8
    inner = height - top - 26
    drawing = Drawing(
        width,
        height,
        f"TPS of each second, {len(runs)} samples of up to {longest} seconds: from "
        f"{min(count for _, seconds in runs for count in seconds)} to {most}",
    )
    for value in (0, most):
        y = top + inner * (1 - value / most)
        drawing.line(left, y, width - 8, y, "rule")
        drawing.text(left - 6, y + 4, str(value), "muted", anchor="end")
    room = (width - left - 16) / max(1, longest - 1)
    for number, seconds in runs:
        points = [
            (left + 4 + second * room, top + inner * (1 - count / most))
            for second, count in enumerate(seconds)
        ]
        if len(points) > 1:
            drawing.path(points, "accent")
        if longest <= 30:
            for second, (x, y) in enumerate(points):
                drawing.dot(
                    x, y, "accent", f"round {number}, second {second + 1}: {seconds[second]} TPS", 2
                )
    drawing.text(left, height - 6, "second 1", "muted")
    drawing.text(width - 8, height - 6, f"{longest}", "muted", anchor="end")
    return drawing
