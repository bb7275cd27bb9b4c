"""Two runs side by side, as text, Markdown and CSV."""

import csv
import io
from collections.abc import Callable, Sequence

import msgspec

from wallab.files import jsonfile
from wallab.record.experiment import Cell
from wallab.record.values import VALUES
from wallab.results.against import Against
from wallab.results.export import grid, ratios
from wallab.results.export.markdown import escape
from wallab.results.table import axis_title


def _notes(against: Against) -> list[str]:
    notes = [ratios.about_verdicts(against)]
    if against.differing:
        notes.append(f"The runs also differ in: {', '.join(against.differing)}.")
    if against.failed:
        notes.append(f"Failed in every round of the first run: {_cells(against.failed)}.")
    if against.alone:
        notes.append(f"Measured in one run only: {_cells(against.alone)}.")
    return notes


def _cells(cells: Sequence[Cell]) -> str:
    """Name the first of the cells, and how many more there are."""
    names = "; ".join(", ".join(cell.values()) for cell in cells[:6])
    return names + (f" and {len(cells) - 6} more" if len(cells) > 6 else "")


def text(against: Against) -> str:
    """Return a line for each cell."""
    lines = [list(map(axis_title, against.axes)) + ratios.HEADS]
    lines += [[*against.heads(pair.cell), *ratios.columns(pair)] for pair in against.pairs]
    head = [against.title, f"{VALUES[against.value].title} of the first by the second run's:"]
    runs = [f"  first:  {against.new}", f"  second: {against.old}", ""]
    laid_out = grid.lay_out(lines, len(lines[0]))
    return "\n".join([*head, *runs, laid_out, "", *_notes(against)]) + "\n"


def markdown(against: Against) -> str:
    """Return a table with a line for each cell."""
    heads = [*map(axis_title, against.axes), *ratios.HEADS]
    sides = ["---"] * len(against.axes) + ratios.SIDES
    lines = [
        f"**{escape(against.title)}**: {escape(VALUES[against.value].title)} of the first by the "
        "second run's  ",
        f"first: {escape(against.new)}  ",
        f"second: {escape(against.old)}",
        "",
        "| " + " | ".join(map(escape, heads)) + " |",
        "| " + " | ".join(sides) + " |",
    ]
    for pair in against.pairs:
        words = [*against.heads(pair.cell), *ratios.columns(pair)]
        lines.append("| " + " | ".join(map(escape, words)) + " |")
    return "\n".join([*lines, "", *(escape(note) for note in _notes(against))]) + "\n"


def comma_separated(against: Against) -> str:
    """Return a line for each cell, with all digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [*against.axes, "value", "ratio", "low_95", "high_95", "p", "rounds", "verdict"]
    )
    for pair in against.pairs:
        figures = (*msgspec.structs.astuple(pair.comparison), pair.verdict)
        writer.writerow([*pair.cell.values(), against.value, *figures])
    return out.getvalue()


FORMATS: dict[str, Callable[[Against], str]] = {
    "text": text,
    "markdown": markdown,
    "csv": comma_separated,
    "json": lambda against: jsonfile.pretty(against) + "\n",
}
