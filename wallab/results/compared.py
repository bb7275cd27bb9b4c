"""Cells compared with others, one by one: ratios and verdicts, and which of them are slower."""

import msgspec

from wallab.record.experiment import Cell
from wallab.record.values import VALUES
from wallab.results.comparison import Comparison, Verdict


class CellPair(msgspec.Struct, frozen=True):
    """A cell, and how it does beside the one that it is compared with."""

    cell: Cell
    comparison: Comparison
    """The cell's figure by that of the other."""
    verdict: Verdict


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Cells of a run beside others, of another run or of the same one."""

    axes: tuple[str, ...]
    titles: dict[str, dict[str, str]]
    """Axis -> value -> how it is written, where that is otherwise."""
    value: str
    """Of `wallab.record.values`."""
    virtual: bool
    """Whether it was measured in virtual time, where a verdict needs a difference of some size."""
    pairs: tuple[CellPair, ...]
    failed: tuple[Cell, ...]
    """Cells that failed in every round of the run."""
    uncompared: tuple[Cell, ...]
    """Other cells of the run that have no figure to compare, although what they are to be compared
    with was measured."""

    def heads(self, cell: Cell) -> list[str]:
        """Return the cell's values on the axes, as tables write them."""
        return [self.titles.get(axis, {}).get(cell[axis], cell[axis]) for axis in self.axes]

    @property
    def unjudged(self) -> list[Cell]:
        """The run's cells that have no verdict, although they were to be compared."""
        few = [pair.cell for pair in self.pairs if pair.verdict == "too few rounds"]
        return [*few, *self.uncompared]


def slower(compared: Compared, percent: float) -> list[CellPair]:
    """Return the cells that are slower by more than so many percent, and by their verdict."""
    less_is_better = VALUES[compared.value].less_is_better

    def share(ratio: float) -> float:
        return 1 / ratio if less_is_better else ratio

    return [
        pair
        for pair in compared.pairs
        if pair.verdict == "slower" and share(pair.comparison.ratio) < 1 - percent / 100
    ]
