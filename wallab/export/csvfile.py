"""The table as CSV: one line a cell."""

import csv
import io

import msgspec

from wallab.evidence import Evidence
from wallab.summary import Summary
from wallab.table import Table


def _cuts(cell: Summary) -> list[int | None]:
    """Power cuts of the cell, and how many of them lost something."""
    found = cell.durability
    return [found.cuts, found.lost] if found else [None, None]


def render(table: Table) -> str:
    """Return one line for each cell: where it is, what was measured, what was published."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    evidence = [field.name for field in msgspec.structs.fields(Evidence)]
    axes: list[str] = []
    cut = any(cell and cell.durability for row in table.rows for cell in row.cells)
    for row in table.rows:
        for cell in row.cells:
            if cell is None:
                continue
            if not axes:
                axes = list(cell.cell)
                writer.writerow(
                    [
                        *axes,
                        "state",
                        "tps",
                        "half_width_95",
                        "rounds",
                        "failed",
                        "relative",
                        "published",
                        "published_relative",
                        *evidence,
                        *(["power_cuts", "power_cuts_lost"] if cut else []),
                        "warnings",
                    ]
                )
            tps = cell.tps
            counted = [getattr(cell.evidence, name) if cell.evidence else None for name in evidence]
            counted[-1] = " ".join(counted[-1] or ())
            writer.writerow(
                [
                    *(cell.cell[axis] for axis in axes),
                    cell.state,
                    *((tps.mean, tps.half_width, tps.n) if tps else (None, None, 0)),
                    cell.failed,
                    cell.relative,
                    cell.reference,
                    cell.reference_relative,
                    *counted,
                    *(_cuts(cell) if cut else []),
                    "; ".join(cell.warnings),
                ]
            )
    return out.getvalue()
