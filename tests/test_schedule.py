"""Rounds hold every cell once, the seed decides the order, and precision when a cell is done."""

import msgspec
import pytest

from wallab.bench import schedule
from wallab.bench.schedule import Schedule, Turn
from wallab.record import matrix
from wallab.record.experiment import Preset
from wallab.record.measured import Measured
from wallab.record.samples import Sample

CELLS = [{"variant": str(number)} for number in range(20)]


def test_every_cell_once_a_round() -> None:
    for cells in schedule.rounds(CELLS, 5, 1):
        assert sorted(cells, key=lambda cell: int(cell["variant"])) == CELLS


def test_seed_decides_the_order() -> None:
    assert schedule.rounds(CELLS, 3, 7) == schedule.rounds(CELLS, 3, 7)
    assert schedule.rounds(CELLS, 3, 7) != schedule.rounds(CELLS, 3, 8)
    first, second, _ = schedule.rounds(CELLS, 3, 7)
    assert first != second


@pytest.mark.parametrize("seed", range(20))
def test_rounds_are_shuffled_each_for_itself(seed: int) -> None:
    """A cell that always follows the same one would always have its leftovers."""
    rounds = [tuple(cell["variant"] for cell in cells) for cells in schedule.rounds(CELLS, 4, seed)]
    for at, order in enumerate(rounds):
        rotated = {order[shift:] + order[:shift] for shift in range(len(order))}
        rotated |= {cells[::-1] for cells in rotated}
        assert not rotated & {*rounds[:at], *rounds[at + 1 :]}


PRESET = Preset(about="", scale=1, clients=1, rounds=20, seconds=1, precision=3.0)
STEADY, NOISY = Turn({"sync": "steady"}), Turn({"sync": "noisy"})


def measured(number: int, position: int, turn: Turn, tps: float) -> Sample:
    """A sample that took 10 s."""
    return Sample(
        cell=turn.cell, round=number, position=position, started="", state="measured",
        control=turn.control, figures=Measured(tps, 10, 0, 1.0, 1.0), phases={"measure": 10.0},
    )  # fmt: skip


def tps_of(turn: Turn, number: int) -> float:
    """What the turn measures in a round: one cell varies by 1%, the other by 40%."""
    spread = 1.0 if turn.cell == STEADY.cell else 40.0
    return 100 + (spread if number % 2 else -spread)


def run(todo: Schedule, most: int = 1000) -> list[Sample]:
    """Measure what is pending, so many samples at most."""
    samples: list[Sample] = []
    for number, position, turn in todo.pending():
        if len(samples) == most:
            break
        samples.append(measured(number, position, turn, tps_of(turn, number)))
        todo.add(samples[-1])
    return samples


def test_a_precise_cell_stops_and_the_other_goes_on() -> None:
    todo = Schedule([STEADY, NOISY], PRESET, 1)
    assert todo.left() == 40
    assert todo.seconds_left() is None
    samples = run(todo)
    count = {name: sum(s.cell["sync"] == name for s in samples) for name in ("steady", "noisy")}
    assert count == {"steady": 8, "noisy": 20}
    (stopped,) = todo.stopped()
    assert (stopped.cell, stopped.rounds, stopped.saved_seconds) == (STEADY.cell, 8, 120.0)
    assert (todo.left(), todo.seconds_left()) == (0, 0.0)


def test_without_precision_nothing_stops() -> None:
    todo = Schedule([STEADY], msgspec.structs.replace(PRESET, precision=None), 1)
    assert len(run(todo)) == 20
    assert todo.stopped() == []


@pytest.mark.parametrize("cut", [0, 1, 7, 15, 16, 17, 23, 28])
def test_goes_on_as_if_it_had_not_been_interrupted(cut: int) -> None:
    whole = run(Schedule([STEADY, NOISY], PRESET, 5))
    first = run(Schedule([STEADY, NOISY], PRESET, 5), cut)
    resumed = Schedule([STEADY, NOISY], PRESET, 5)
    for sample in first:
        resumed.add(sample)
    assert first + run(resumed) == whole


def test_the_control_is_a_turn_of_its_own() -> None:
    control = Turn(STEADY.cell, control=True)
    samples = run(Schedule([STEADY, control], msgspec.structs.replace(PRESET, rounds=2), 1))
    assert sorted((s.round, s.control) for s in samples) == [
        (1, False), (1, True), (2, False), (2, True),
    ]  # fmt: skip


def test_a_failed_sample_is_not_repeated() -> None:
    todo = Schedule([NOISY], msgspec.structs.replace(PRESET, rounds=2), 1)
    failed = msgspec.structs.replace(measured(1, 1, NOISY, 1), state="failed", figures=None)
    todo.add(failed)
    assert todo.so_far(NOISY) is None
    assert [s.round for s in run(todo)] == [2]


def test_full_has_a_control_and_a_precision() -> None:
    experiment, full = matrix.choose(matrix.read(), "thread", "full")
    assert full.precision == 3
    assert full.control in matrix.cells(experiment, full)
