"""The table as Markdown, for a mailing list or a pull request."""

from wallab.export import footnotes, text
from wallab.summary import Summary
from wallab.table import Table, value_title


def escape(value: str) -> str:
    """Escape what Markdown would take for its own."""
    for character in "\\`*|<>[]#":
        value = value.replace(character, f"\\{character}")
    return value


def _cell(cell: Summary | None) -> str:
    if cell is None:
        return ""
    shown = " ".join(filter(None, (text.tps(cell), text.spread(cell))))
    if cell.reference is not None:
        shown += f" [{text.published(cell)}]"
    return shown + (f", {escape(text.durability(cell))}" if cell.durability else "")


def render(table: Table) -> str:
    """Return the table with intervals, and the published figure in brackets."""
    heads = [*table.row_axes, *table.columns]
    lines = [
        f"**{escape(table.title)}**  ",
        f"{escape(table.subtitle)}",
        "",
        "| " + " | ".join(map(escape, heads)) + " |",
        "| " + " | ".join(["---"] * len(table.row_axes) + ["---:"] * len(table.columns)) + " |",
    ]
    for row in table.rows:
        titles = [
            value_title(axis, value) for axis, value in zip(table.row_axes, row.head, strict=True)
        ]
        lines.append("| " + " | ".join([*map(escape, titles), *map(_cell, row.cells)]) + " |")
    about = "TPS ± half of the 95% interval"
    if table.reference:
        about += f"; in brackets: {escape(table.reference.title)}"
    notes = [f"! {escape(note)}" for note, _ in table.notes]
    notes += [f"{escape(note)}." for note in (table.deviation_note, table.control) if note]
    reasons = [
        f"- **{escape(row)}, {escape(column)}**: {escape(said)}"
        for row, cells in footnotes.by_row(table)
        for column, said in cells
    ]
    if reasons:
        reasons = ["", f"{footnotes.TITLE}:", "", *reasons]
    return "\n".join([*lines, "", f"{about}.", *notes, *reasons]) + "\n"
