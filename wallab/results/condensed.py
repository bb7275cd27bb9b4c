"""A table without the columns and rows that are (N/A) throughout, and a line that says which."""

import msgspec

from wallab.results.summary import Summary
from wallab.results.table import Table


def _says_nothing(cells: list[Summary | None]) -> bool:
    """Whether all cells that there are can be neither measured nor compared with anything."""
    there = [cell for cell in cells if cell]
    return bool(there) and all(
        cell.state == "N/A" and cell.reference is None and not cell.references for cell in there
    )


def condensed(table: Table) -> Table:
    """Return the table as people read it; the same one if nothing would be left of it."""
    columns = {
        place: name
        for place, name in enumerate(table.columns)
        if _says_nothing([row.cells[place] for row in table.rows])
    }
    rows = [row for row in table.rows if _says_nothing(list(row.cells))]
    if len(columns) == len(table.columns) or len(rows) == len(table.rows):
        return table
    names: dict[str, dict[str, None]] = {}
    for place, name in columns.items():
        for row in table.rows:
            if cell := row.cells[place]:
                names.setdefault(cell.reason, {})[f"column {name}"] = None
    for row in rows:
        title = ", ".join(table.heads(row))
        for cell in filter(None, row.cells):
            names.setdefault(cell.reason, {})[f"row {title}"] = None
    left = tuple(
        msgspec.structs.replace(
            row, cells=tuple(c for place, c in enumerate(row.cells) if place not in columns)
        )
        for row in table.rows
        if row not in rows
    )
    return msgspec.structs.replace(
        table,
        columns=tuple(name for place, name in enumerate(table.columns) if place not in columns),
        rows=left,
        left_out=tuple(
            f"Left out, since all of it is (N/A): {'; '.join(which)}: {reason}."
            for reason, which in names.items()
        ),
    )
