"""The table as CSV: one line a cell."""

import csv
import io
from typing import Any

import msgspec

from wallab.results.evidence import Evidence
from wallab.results.summary import Summary
from wallab.results.table import Table
from wallab.results.within import VariantPair


def _cuts(cell: Summary) -> list[int | None]:
    """Power cuts of the cell, and how many of them lost something."""
    durability = cell.durability
    return [durability.cuts, durability.lost] if durability else [None, None]


def _figure(cell: Summary, name: str) -> tuple[float | None, float | None]:
    """Return the mean of one of the table's values, and half of its interval."""
    estimate = cell.values.get(name)
    return (estimate.mean, estimate.half_width) if estimate else (None, None)


_COMPARED = ["compared_to", "ratio", "low_95", "high_95", "p", "compared_rounds", "verdict"]


def _compared(pair: VariantPair | None) -> list[Any]:
    """Return how the cell's variant does beside the one that it is built on."""
    if pair is None:
        return [None] * len(_COMPARED)
    return [pair.base, *msgspec.structs.astuple(pair.comparison), pair.verdict]


def render(table: Table) -> str:
    """Return one line for each cell: where it is, what was measured, what was published.

    Ratios and published figures are those of the table's first value.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    # That the cache is kept follows from the cell.
    evidence = [f.name for f in msgspec.structs.fields(Evidence) if f.name != "kept"]
    axes: list[str] = []
    further = [name for name in table.values if name != "tps"]
    pairs = {tuple(p.cell.values()): p for p in (table.within.pairs if table.within else ())}
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
                        *(head for name in further for head in (name, f"{name}_half_width_95")),
                        "failed",
                        "relative",
                        "published",
                        "published_relative",
                        *evidence,
                        *(["power_cuts", "power_cuts_lost"] if cut else []),
                        *(_COMPARED if pairs else []),
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
                    *(figure for name in further for figure in _figure(cell, name)),
                    cell.failed,
                    cell.relative,
                    cell.reference,
                    cell.reference_relative,
                    *counted,
                    *(_cuts(cell) if cut else []),
                    *(_compared(pairs.get(tuple(cell.cell.values()))) if pairs else []),
                    "; ".join(cell.warnings),
                ]
            )
    return out.getvalue()
