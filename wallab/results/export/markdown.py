"""The table as Markdown, for a mailing list or a pull request."""

from wallab.record.reference import Beside
from wallab.record.values import VALUES
from wallab.results.export import footnotes, text
from wallab.results.summary import Summary
from wallab.results.table import Table, value_title


def escape(value: str) -> str:
    """Escape what Markdown would take for its own."""
    for character in "\\`*|<>[]#":
        value = value.replace(character, f"\\{character}")
    return value


def _shown(cell: Summary, show: tuple[text.Show, text.Show, text.Show]) -> str:
    """Write a figure, its interval, and in brackets what was published of it."""
    mean, spread, published = (one(cell) for one in show)
    return " ".join(filter(None, (mean, spread, published and f"[{published}]")))


def _lines(table: Table) -> list[tuple[str, text.Show]]:
    """Return the lines of a row: a figure each."""
    first = text.first(table)
    each = 3 if table.reference else 2
    figures = text.values(table)[each:]

    def tps(cell: Summary) -> str:
        mark = f", {escape(text.durability(cell))}" if cell.durability else ""
        return _shown(cell, first) + mark

    lines: list[tuple[str, text.Show]] = [(VALUES[table.values[0]].title, tps)]
    for at in range(0, len(figures), each):
        title, mean = figures[at]
        show = (mean, figures[at + 1][1], figures[at + 2][1] if each > 2 else lambda _: "")
        lines.append((title, lambda cell, show=show: _shown(cell, show)))  # type: ignore[misc]
    return lines


def _beside(published: Beside) -> list[str]:
    """Return the lines of a published table."""
    heads = [published.title, *published.columns]
    return [
        "",
        "| " + " | ".join(map(escape, heads)) + " |",
        "| " + " | ".join(["---"] + ["---:"] * len(published.columns)) + " |",
        *(
            "| " + " | ".join([escape(name), *(f"{one:g}" for one in figures)]) + " |"
            for name, figures in published.lines.items()
        ),
    ]


def render(table: Table) -> str:
    """Return the table with intervals, and the published figure in brackets."""
    lines_of_row = _lines(table)
    label = [""] if len(lines_of_row) > 1 else []
    heads = [*table.row_axes, *label, *table.columns]
    sides = ["---"] * (len(heads) - len(table.columns)) + ["---:"] * len(table.columns)
    lines = [
        f"**{escape(table.title)}**  ",
        f"{escape(table.subtitle)}",
        "",
        "| " + " | ".join(map(escape, heads)) + " |",
        "| " + " | ".join(sides) + " |",
    ]
    for row in table.rows:
        titles = [
            value_title(axis, value) for axis, value in zip(table.row_axes, row.head, strict=True)
        ]
        for number, (title, show) in enumerate(lines_of_row):
            shown = [show(cell) if cell else "" for cell in row.cells]
            if number and not any(shown):
                continue
            head = [*(titles if number == 0 else [""] * len(titles)), *([title] if label else [])]
            lines.append("| " + " | ".join([*map(escape, head), *shown]) + " |")
    about = "± half of the 95% interval"
    if not label:
        about = f"{lines_of_row[0][0]} {about}"
    if table.reference:
        about += f"; in brackets: {escape(table.reference.title)}"
    notes = [f"Machine: {escape(table.machine)}."] if table.machine else []
    notes += [f"! {escape(note)}" for note, _ in table.notes]
    notes += [f"{escape(note)}." for note in (table.deviation_note, table.control) if note]
    reasons = [
        f"- **{escape(row)}, {escape(column)}**: {escape(said)}"
        for row, cells in footnotes.by_row(table)
        for column, said in cells
    ]
    if reasons:
        reasons = ["", f"{footnotes.TITLE}:", "", *reasons]
    beside = [
        line for one in (table.reference.table if table.reference else ()) for line in _beside(one)
    ]
    return "\n".join([*lines, *beside, "", f"{about}.", *notes, *reasons]) + "\n"
