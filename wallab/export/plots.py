"""Plots of a run: TPS with intervals, the heads' time, drift over the rounds, a cell's course."""

import math
import statistics

from wallab import evidence
from wallab.export import footnotes, text
from wallab.export.svg import Drawing
from wallab.samples import Sample
from wallab.summary import Summary
from wallab.table import Table

HEADS = ("waited", "moved", "transferred", "idle")
"""What the heads do, in the order of the plots."""

_LEFT, _BAR, _RIGHT, _STEP = 190, 420, 130, 20


def interval(cell: Summary) -> tuple[float, float] | None:
    """Return the ends of the 95% interval of TPS; None without one."""
    if cell.tps is None or cell.tps.half_width is None:
        return None
    return max(0.0, cell.tps.mean - cell.tps.half_width), cell.tps.mean + cell.tps.half_width


def ceiling(table: Table) -> float:
    """Return the largest figure that a plot of TPS has to show."""
    found = [1.0]
    for row in table.rows:
        for cell in filter(None, row.cells):
            found += [cell.reference or 0, cell.tps.mean if cell.tps else 0]
            found += interval(cell) or ()
    return max(found)


def step(largest: float, parts: int = 5) -> float:
    """Return a round distance (1, 2 or 5 times a power of ten) for so many parts of an axis."""
    power: float = 10.0 ** math.floor(math.log10(largest / parts))
    return next(f * power for f in (1, 2, 5, 10) if f * power * parts >= largest)


def _rows(table: Table) -> list[tuple[str, list[tuple[str, Summary]]]]:
    """Return each row's name and its cells that were measured."""
    return [
        (
            footnotes.row_title(table, row),
            [
                (column, cell)
                for column, cell in zip(table.columns, row.cells, strict=True)
                if cell and cell.tps
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


def tps(table: Table) -> Drawing:
    """Draw a bar for the TPS of each measured cell, with its interval and the published figure."""
    what = "TPS, 95% interval"
    if table.reference:
        what += f"; ● {table.reference.title}"
    drawing, y = _frame(table, what, f"{table.title}: TPS of each cell with 95% intervals")
    most = ceiling(table)
    scale = _BAR / most
    for title, cells in _rows(table):
        y += 22
        drawing.text(8, y, title)
        for tick in range(int(most / step(most)) + 1):
            x = _LEFT + tick * step(most) * scale
            drawing.line(x, y + 8, x, y + 8 + len(cells) * _STEP, "rule")
            drawing.text(x, y, f"{tick * step(most):g}", "muted", anchor="middle")
        y += 8
        for column, cell in cells:
            assert cell.tps
            middle = y + _STEP / 2
            drawing.text(_LEFT - 8, middle + 4, column, "muted", anchor="end")
            drawing.rect(_LEFT, y + 4, cell.tps.mean * scale, _STEP - 8, "accent")
            end = max(cell.tps.mean, cell.reference or 0)
            if ends := interval(cell):
                end = max(end, ends[1])
                low, high = (_LEFT + one * scale for one in ends)
                drawing.line(low, middle, high, middle, "ink")
                drawing.line(low, middle - 4, low, middle + 4, "ink")
                drawing.line(high, middle - 4, high, middle + 4, "ink")
            if cell.reference is not None:
                drawing.dot(_LEFT + cell.reference * scale, middle, "mark", radius=3.5)
            shown = " ".join(filter(None, (text.tps(cell), text.spread(cell))))
            drawing.text(_LEFT + end * scale + 8, middle + 4, shown)
            y += _STEP
    return drawing


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
    for title, cells in _rows(table):
        y += 22
        drawing.text(8, y, title)
        y += 8
        for column, cell in cells:
            shares = evidence.shares_of_head(cell.evidence) if cell.evidence else None
            drawing.text(_LEFT - 8, y + _STEP / 2 + 4, column, "muted", anchor="end")
            at = float(_LEFT)
            for role in HEADS if shares else ():
                width = (shares or {})[role] * _BAR
                drawing.rect(at, y + 3, width, _STEP - 6, role)
                at += width
            if shares:
                drawing.text(at + 8, y + _STEP / 2 + 4, f"{1 - shares['idle']:.0%} at work")
            y += _STEP
    return drawing


def _order(samples: list[Sample]) -> list[Sample]:
    return sorted((s for s in samples if s.figures), key=lambda s: (s.round, s.position))


def drift(samples: list[Sample]) -> Drawing:
    """Draw each sample relative to its cell's mean, in the order in which they were measured."""
    ordered = _order(samples)
    means: dict[tuple[str, ...], list[float]] = {}
    for sample in ordered:
        if sample.figures:
            means.setdefault(tuple(sample.cell.values()), []).append(sample.figures.tps)
    values = [
        (sample, sample.figures.tps / statistics.fmean(means[tuple(sample.cell.values())]))
        for sample in ordered
        if sample.figures
    ]
    far = max([0.1, *(abs(value - 1) for _, value in values)])
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
    rounds = sorted({sample.round for sample, _ in values})
    for number in rounds:
        of_round = [value for sample, value in values if sample.round == number]
        end = begin + len(of_round)
        middle = statistics.median(of_round)
        x1, x2 = left + begin * room, left + end * room
        if begin:
            drawing.line(x1, top, x1, top + inner, "rule")
        for place, (sample, value) in enumerate(values[begin:end], begin):
            name = ", ".join(sample.cell.values())
            tps_of = sample.figures.tps if sample.figures else 0.0
            drawing.dot(
                left + (place + 0.5) * room,
                at(value),
                "accent",
                f"{name}, round {number}: {tps_of:.1f} TPS, {value - 1:+.1%}",
            )
        drawing.line(x1, at(middle), x2, at(middle), "mark")
        if len(rounds) <= 12 or number % 5 == 0:
            drawing.text((x1 + x2) / 2, height - 20, str(number), "muted", anchor="middle")
        begin = end
    drawing.text(left + (width - left) / 2, height - 4, "round", "muted", anchor="middle")
    return drawing


def course(samples: list[Sample]) -> Drawing | None:
    """Draw the TPS of each second of a cell's samples; None if none has them."""
    runs = [
        (sample.round, list(sample.figures.course.per_second))
        for sample in samples
        if sample.figures and sample.figures.course and sample.figures.course.per_second
    ]
    if not runs:
        return None
    longest = max(len(seconds) for _, seconds in runs)
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
