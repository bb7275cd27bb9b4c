"""Ratios of compared cells, and what their verdicts take, as words."""

from wallab.results.compared import CellPair, Compared
from wallab.results.comparison import LEAST_VIRTUAL, VERDICT_ROUNDS

HEADS = ["ratio", "95% interval", "rounds", "verdict"]

SIDES = ["---:", "---", "---:", "---"]
"""Where they stand in Markdown."""


def columns(pair: CellPair) -> list[str]:
    """Write ratio, interval, rounds and verdict."""
    ratio = pair.comparison
    interval = "" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
    return [f"{ratio.ratio:.3f}", interval, str(ratio.rounds), pair.verdict]


def about_verdicts(compared: Compared) -> str:
    """Say what a verdict takes."""
    least = (
        f" In virtual time a verdict also needs a difference of at least {LEAST_VIRTUAL:.0%}."
        if compared.virtual
        else ""
    )
    return (
        f"Verdicts are corrected for the number of cells (Holm), and need {VERDICT_ROUNDS} rounds "
        f"on either side; intervals are each cell's own.{least}"
    )
