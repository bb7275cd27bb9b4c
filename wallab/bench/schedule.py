"""In which order cells are measured, and when a cell has been measured enough.

Rounds of all cells, each shuffled, from a recorded seed. What is still to be measured follows from
the samples alone, so an interrupted run goes on as if it had not been.
"""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from wallab.record.cost import StoppedEarly
from wallab.record.experiment import Cell, Preset
from wallab.record.samples import Sample
from wallab.results.intervals import Estimate, estimate, precise_enough

Item = TypeVar("Item")


def rounds(items: Sequence[Item], count: int, seed: int) -> list[list[Item]]:
    """Return so many rounds; each holds every item once, shuffled. Same seed, same order."""
    shuffler = random.Random(seed)  # noqa: S311
    return [shuffler.sample(items, len(items)) for _ in range(count)]


class Turn(msgspec.Struct, frozen=True):
    """A cell's place in a round."""

    cell: Cell
    control: bool = False
    """Whether this is the cell under its second name, for the A/A control."""

    @property
    def key(self) -> tuple[object, ...]:
        """What tells turns apart; a cell has its axes in the order of its experiment."""
        return (self.control, *self.cell.items())

    @property
    def name(self) -> str:
        """The cell for people."""
        return " ".join([*self.cell.values(), *(["(control)"] if self.control else [])])


def turn_of(sample: Sample) -> Turn:
    """Return the turn that the sample was measured in."""
    return Turn(sample.cell, sample.control)


Pending = tuple[int, int, Turn]
"""Round, position in it (both from 1), turn."""


class _Known(NamedTuple):
    """What is kept of a sample, whose rest is in the run's file."""

    tps: float | None
    """None: it failed."""
    seconds: float


class Schedule:
    """What of a run is still to be measured."""

    def __init__(self, turns: Sequence[Turn], preset: Preset, seed: int) -> None:
        self._turns = list(turns)
        self._preset = preset
        self._rounds = rounds(self._turns, preset.rounds, seed)
        self._samples: dict[tuple[object, ...], dict[int, _Known]] = {
            turn.key: {} for turn in self._turns
        }
        self._whole = 0
        """Rounds, from the first, in which nothing is pending any more."""

    def add(self, sample: Sample) -> None:
        """Take note of a sample, also one of an earlier session."""
        known = _Known(sample.figures.tps if sample.figures else None, sum(sample.phases.values()))
        self._samples.setdefault(turn_of(sample).key, {})[sample.round] = known

    def pending(self) -> Iterator[Pending]:
        """Yield what is pending, in its order.

        For what is to be measured, each must be added as a sample before the next is asked for.
        """
        for number in range(self._whole + 1, len(self._rounds) + 1):
            for position, turn in enumerate(self._rounds[number - 1], 1):
                if number not in self._samples[turn.key] and not self._done(turn, number):
                    yield number, position, turn
            if self._whole == number - 1 and not self._pending_in(number):
                self._whole = number

    def _pending_in(self, number: int) -> bool:
        """Whether anything is; what is not, never will be: all that decides on it is measured."""
        return any(
            number not in self._samples[turn.key] and not self._done(turn, number)
            for turn in self._turns
        )

    def _rates(self, turn: Turn, before: int | None = None) -> list[float]:
        return [
            known.tps
            for number, known in sorted(self._samples[turn.key].items())
            if known.tps is not None and (before is None or number < before)
        ]

    def _done(self, turn: Turn, number: int) -> bool:
        """Whether what was measured before the round is precise enough."""
        precision = self._preset.precision
        return precision is not None and precise_enough(self._rates(turn, number), precision)

    def so_far(self, turn: Turn) -> Estimate | None:
        """Return what is known of a cell."""
        rates = self._rates(turn)
        return estimate(rates) if rates else None

    def measured(self) -> int:
        """Return how many samples there are."""
        return sum(map(len, self._samples.values()))

    def _waiting(self, turn: Turn) -> int:
        """Return how many samples of a cell are left, if it is not precise enough early."""
        mine = self._samples[turn.key]
        if self._preset.precision is None:
            return self._preset.rounds - len(mine)
        return sum(
            1
            for number in range(1, self._preset.rounds + 1)
            if number not in mine and not self._done(turn, number)
        )

    def left(self) -> int:
        """Return how many samples are left, if no further cell is precise enough early."""
        return sum(map(self._waiting, self._turns))

    def seconds_left(self) -> float | None:
        """Return how long those take, by the cells' times so far; None if nothing is known."""
        known = [s for of_turn in self._samples.values() for s in of_turn.values()]
        if not known:
            return None
        typical = sum(each.seconds for each in known) / len(known)
        total = 0.0
        for turn in self._turns:
            mine = self._samples[turn.key].values()
            each = sum(each.seconds for each in mine) / len(mine) if mine else typical
            total += each * self._waiting(turn)
        return total

    def stopped(self) -> list[StoppedEarly]:
        """Return the cells that were precise enough early, in the order of the turns."""
        cells = []
        for turn in self._turns:
            mine = self._samples[turn.key]
            spared = self._preset.rounds - len(mine)
            if spared > 0 and self._done(turn, max(mine, default=0) + 1):
                each = sum(each.seconds for each in mine.values()) / len(mine)
                cells.append(
                    StoppedEarly(turn.cell, turn.control, len(mine), round(each * spared, 1))
                )
        return cells
