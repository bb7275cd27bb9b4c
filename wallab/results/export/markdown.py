"""The table as Markdown, for a mailing list or a pull request."""

from wallab.record.reference import Beside
from wallab.results.export import footnotes, ratios, text, variants
from wallab.results.summary import Summary
from wallab.results.table import Table
from wallab.results.within import Within


def escape(value: str) -> str:
    """Escape what Markdown would take for its own."""
    for character in "\\`*|<>[]#":
        value = value.replace(character, f"\\{character}")
    return value


def _words(figure: text.Figure, cell: Summary, *, marked: bool) -> str:
    """Write a figure of a cell, and on the cell's first line what power cuts have shown."""
    mark = f", {escape(text.durability(cell))}" if marked and cell.durability else ""
    return figure(cell) + mark


def _beside(published: Beside) -> list[str]:
    """Return the lines of a published table."""
    heads = [published.title, *published.columns]
    return [
        "",
        "| " + " | ".join(map(escape, heads)) + " |",
        "| " + " | ".join(["---"] + ["---:"] * len(published.columns)) + " |",
        *(
            "| " + " | ".join([escape(name), *(f"{figure:g}" for figure in figures)]) + " |"
            for name, figures in published.lines.items()
        ),
    ]


def _variants(within: Within) -> list[str]:
    """Return the lines of variants beside those that they are built on."""
    heads, *body = [variants.heads(within), *(variants.line(within, pair) for pair in within.pairs)]
    sides = ["---"] * (len(heads) - len(ratios.SIDES)) + ratios.SIDES
    return [
        "",
        f"**{escape(variants.title(within))}**",
        "",
        "| " + " | ".join(map(escape, heads)) + " |",
        "| " + " | ".join(sides) + " |",
        *("| " + " | ".join(map(escape, line)) + " |" for line in body),
        "",
        escape(ratios.about_verdicts(within)),
        "",
        *(f"- **{escape(name)}**: {escape(words)}" for name, words in variants.changed(within)),
    ]


def render(table: Table) -> str:
    """Return the table with intervals, and the published figure in brackets."""
    figures = text.figures(table)
    label = [""] if len(figures) > 1 else []
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
        titles = table.heads(row)
        for number, figure in enumerate(figures):
            words = [_words(figure, cell, marked=not number) if cell else "" for cell in row.cells]
            if number and not any(words):
                continue
            head = titles if number == 0 else [""] * len(titles)
            head = [*head, figure.title] if label else head
            lines.append("| " + " | ".join([*map(escape, head), *words]) + " |")
    about = "± half of the 95% interval"
    if not label:
        about = f"{figures[0].title} {about}"
    if table.reference:
        about += f"; in brackets: {escape(table.reference.title)}"
    notes = list(map(escape, table.left_out))
    notes += [f"Machine: {escape(table.machine)}."] if table.machine else []
    notes += [f"! {escape(note)}" for note, _ in table.notes]
    notes += [f"{escape(note)}." for note in (table.deviation_note, table.control) if note]
    reasons = [
        f"- **{escape(row)}, {escape(column)}**: {escape(reason)}"
        for row, cells in footnotes.by_row(table)
        for column, reason in cells
    ]
    if reasons:
        reasons = ["", f"{footnotes.TITLE}:", "", *reasons]
    beside = [
        line
        for published in (table.reference.table if table.reference else ())
        for line in _beside(published)
    ]
    compared = _variants(table.within) if table.within and table.within.pairs else []
    return "\n".join([*lines, *beside, "", f"{about}.", *notes, *compared, *reasons]) + "\n"
