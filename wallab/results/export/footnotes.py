"""The footnotes of a table: why each cell is as fast as it is, and what to be wary of."""

from wallab.results import evidence
from wallab.results.summary import Summary
from wallab.results.table import Row, Table

_LATE = "transactions began {:.2f} ms late on average (schedule lag, part of their latency)"

TITLE = "Why: what the counters say of each cell"


def row_title(table: Table, row: Row) -> str:
    """Return a row's name: the values of its axes, variants as the thread wrote them."""
    return ", ".join(table.heads(row))


def reasons(cell: Summary) -> tuple[str, ...]:
    """Explain one cell in words; nothing if nothing was counted."""
    counted = evidence.explain(cell.evidence) if cell.evidence else ()
    late = [] if cell.lag_ms is None else [_LATE.format(cell.lag_ms)]
    return (*counted, *late, *([cell.durability.words] if cell.durability else []))


def reason(cell: Summary) -> str:
    """Explain one cell in one line."""
    return "; ".join(reasons(cell))


def by_row(table: Table) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each row's name with its cells' (column, reason), cells without one left out."""
    rows = []
    for row in table.rows:
        explained = [
            (column, words)
            for column, cell in zip(table.columns, row.cells, strict=True)
            if cell and (words := reason(cell))
        ]
        if explained:
            rows.append((row_title(table, row), explained))
    return rows


def remarks(table: Table) -> list[str]:
    """Return what has to be known about the words in the table, and the experiment's own notes."""
    remarks = [*table.left_out, *(f"(N/A): {reason}." for reason in table.lacking)]
    if any("on-unflushed" in row.head for row in table.rows):
        remarks.append(
            "on-unflushed: the drive's cache is on and nobody flushes it, as in 2005: "
            "a power cut can lose acknowledged commits."
        )
    if any(cell.lag_ms is not None for cell in table.cells):
        remarks.append(
            "At a fixed rate latency counts from when a transaction was to begin: it has the "
            "schedule lag."
        )
    if any(cell.cell.get("think", "0") != "0" for cell in table.cells):
        remarks.append("think: a client rests so long before a transaction; no latency has it.")
    if any(cell.durability for cell in table.cells):
        remarks.append(
            "safe n: n power cuts under load, nothing lost, and below 3/n lose at 95%; "
            "LOST k/n: k of n lost what had been acknowledged."
        )
    if table.machine:
        remarks.append(f"Machine: {table.machine}.")
    about = [f"{note}." for note in (table.deviation_note, table.control) if note]
    return [*remarks, *table.further_notes, *about]
