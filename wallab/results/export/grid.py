"""Cells laid out in columns, as plain text."""

from collections.abc import Collection, Sequence


def lay_out(rows: Sequence[Sequence[str]], left: int, breaks: Collection[int] = (1,)) -> str:
    """Return the rows, one below the other, all with as many cells.

    The first so many columns are written from the left, the others to the right. A rule stands in
    front of the rows with the numbers in `breaks`, which count from 0.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "-+-".join("-" * width for width in widths)
    lines: list[str] = []
    for number, row in enumerate(rows):
        if number in breaks:
            lines.append(rule)
        padded = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(" | ".join(padded).rstrip())
    return "\n".join(lines)
