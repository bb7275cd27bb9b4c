"""Two runs side by side, as text, Markdown and CSV."""

import csv
import io
from collections.abc import Callable

from wallab.files import jsonfile
from wallab.record.axes import find
from wallab.record.values import VALUES
from wallab.results.against import Against, Pair
from wallab.results.comparison import VERDICT_ROUNDS
from wallab.results.export import grid
from wallab.results.export.markdown import escape


def _axes(found: Against) -> list[str]:
    return list(found.pairs[0].cell)


def _columns(pair: Pair) -> list[str]:
    """Ratio, interval, rounds and verdict."""
    one = pair.comparison
    interval = "" if one.low is None else f"{one.low:.3f} to {one.high:.3f}"
    return [f"{one.ratio:.3f}", interval, str(one.rounds), pair.verdict]


HEADS = ["ratio", "95% interval", "rounds", "verdict"]


def _notes(found: Against) -> list[str]:
    notes = [
        "Verdicts are corrected for the number of cells (Holm), and need "
        f"{VERDICT_ROUNDS} rounds on either side; intervals are each cell's own."
    ]
    if found.differing:
        notes.append(f"The runs also differ in: {', '.join(found.differing)}.")
    if found.alone:
        cells = "; ".join(", ".join(cell.values()) for cell in found.alone[:6])
        more = f" and {len(found.alone) - 6} more" if len(found.alone) > 6 else ""
        notes.append(f"Measured in one run only: {cells}{more}.")
    return notes


def text(found: Against) -> str:
    """Return a line for each cell."""
    axes = _axes(found)
    lines = [[find(axis).title or axis for axis in axes] + HEADS]
    lines += [
        [*(find(axis).shown(pair.cell[axis]) for axis in axes), *_columns(pair)]
        for pair in found.pairs
    ]
    head = [found.title, f"{VALUES[found.value].title} of the first by the second run's:"]
    runs = [f"  first:  {found.new}", f"  second: {found.old}", ""]
    shown = grid.lay_out(lines, len(lines[0]))
    return "\n".join([*head, *runs, shown, "", *_notes(found)]) + "\n"


def markdown(found: Against) -> str:
    """Return a table with a line for each cell."""
    axes = _axes(found)
    heads = [*(find(axis).title or axis for axis in axes), *HEADS]
    sides = ["---"] * len(axes) + ["---:", "---", "---:", "---"]
    lines = [
        f"**{escape(found.title)}**: {escape(VALUES[found.value].title)} of the first by the "
        "second run's  ",
        f"first: {escape(found.new)}  ",
        f"second: {escape(found.old)}",
        "",
        "| " + " | ".join(map(escape, heads)) + " |",
        "| " + " | ".join(sides) + " |",
    ]
    for pair in found.pairs:
        titles = [find(axis).shown(pair.cell[axis]) for axis in axes]
        lines.append("| " + " | ".join(map(escape, [*titles, *_columns(pair)])) + " |")
    return "\n".join([*lines, "", *(escape(note) for note in _notes(found))]) + "\n"


def comma_separated(found: Against) -> str:
    """Return a line for each cell, with all digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [*_axes(found), "value", "ratio", "low_95", "high_95", "p", "rounds", "verdict"]
    )
    for pair in found.pairs:
        one = pair.comparison
        figures = (one.ratio, one.low, one.high, one.p, one.rounds, pair.verdict)
        writer.writerow([*pair.cell.values(), found.value, *figures])
    return out.getvalue()


FORMATS: dict[str, Callable[[Against], str]] = {
    "text": text,
    "markdown": markdown,
    "csv": comma_separated,
    "json": lambda found: jsonfile.pretty(found) + "\n",
}
