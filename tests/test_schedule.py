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


def test_names_of_turns() -> None:
    cell = {"variant": "both", "sync": "fsync"}
    assert Turn(cell).name == "both fsync"
    assert Turn(cell, control=True).name == "both fsync (control)"
    assert Turn(cell).key != Turn(cell, control=True).key


def test_only_what_was_measured_before_a_round_decides_on_it() -> None:
    """As it was decided then, whatever came later."""
    preset = msgspec.structs.replace(PRESET, rounds=12)
    whole = run(Schedule([STEADY], preset, 1))
    assert len(whole) == 8
    later = Schedule([STEADY], preset, 1)
    for number in range(9, 13):
        later.add(measured(number, 1, STEADY, 100 * number))
    assert [s.round for s in run(later)] == [s.round for s in whole]


def test_estimate_of_what_was_measured() -> None:
    todo = Schedule([NOISY], PRESET, 1)
    for number, tps in ((2, 30.0), (1, 10.0), (3, 20.0)):
        todo.add(measured(number, 1, NOISY, tps))
    known = todo.so_far(NOISY)
    assert known is not None
    assert known.mean == 20


def lasting(number: int, turn: Turn, seconds: float) -> Sample:
    """A sample that took so long, in two phases."""
    phases = {"restore": 1.0, "measure": seconds - 1}
    return msgspec.structs.replace(measured(number, 1, turn, 100.0), phases=phases)


def test_time_left_is_that_of_each_cell() -> None:
    other = Turn({"sync": "other"})
    preset = msgspec.structs.replace(PRESET, rounds=4, precision=None)
    todo = Schedule([STEADY, NOISY, other], preset, 1)
    for sample in (lasting(1, STEADY, 10), lasting(2, STEADY, 20), lasting(1, NOISY, 60)):
        todo.add(sample)
    assert todo.measured() == 3
    assert todo.left() == 2 + 3 + 4
    # One of which nothing is known takes the mean of all samples.
    assert todo.seconds_left() == pytest.approx(2 * 15 + 3 * 60 + 4 * 30)


def test_the_first_sample_tells_of_the_time_left() -> None:
    todo = Schedule([STEADY], msgspec.structs.replace(PRESET, rounds=3, precision=None), 1)
    todo.add(lasting(1, STEADY, 10))
    assert todo.seconds_left() == 20


def test_a_cell_that_no_round_was_spared_did_not_stop_early() -> None:
    """It would be precise enough, and all of its rounds were measured."""
    preset = msgspec.structs.replace(PRESET, rounds=8)
    todo = Schedule([STEADY, NOISY], preset, 1)
    assert len(run(todo)) == 16
    assert todo.stopped() == []
    assert todo.left() == 0


def test_a_cell_may_stop_one_round_early() -> None:
    control = Turn(STEADY.cell, control=True)
    preset = msgspec.structs.replace(PRESET, rounds=9)
    todo = Schedule([control], preset, 1)
    for number in range(1, 9):
        sample = lasting(number, control, 10.26)
        rate = measured(number, 1, control, tps_of(control, number)).figures
        todo.add(msgspec.structs.replace(sample, figures=rate))
    (stopped,) = todo.stopped()
    assert (stopped.cell, stopped.control) == (STEADY.cell, True)
    assert (stopped.rounds, stopped.saved_seconds) == (8, 10.3)


def test_a_cell_that_was_interrupted_did_not_stop_early() -> None:
    todo = Schedule([STEADY, NOISY], PRESET, 1)
    assert todo.stopped() == []
    run(todo, 14)
    assert todo.stopped() == []
    assert todo.left() == 26


def test_what_is_left_of_a_resumed_run_counts_gaps() -> None:
    todo = Schedule([NOISY], msgspec.structs.replace(PRESET, rounds=5), 1)
    for number in (2, 5):
        todo.add(measured(number, 1, NOISY, 100.0))
    assert todo.left() == 3
    assert [s.round for s in run(todo)] == [1, 3, 4]


def test_positions_are_those_in_the_round() -> None:
    samples = run(Schedule([STEADY, NOISY], msgspec.structs.replace(PRESET, rounds=2), 1))
    assert [(s.round, s.position) for s in samples] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_what_came_after_a_gap_decides_nothing_in_it() -> None:
    todo = Schedule([STEADY], msgspec.structs.replace(PRESET, rounds=10), 1)
    for number in (*range(1, 9), 10):
        todo.add(measured(number, 1, STEADY, 100.0 if number == 10 else tps_of(STEADY, number)))
    assert (todo.left(), run(todo)) == (0, [])
    wild = Schedule([STEADY], msgspec.structs.replace(PRESET, rounds=10), 1)
    for number in (*range(1, 9), 10):
        wild.add(measured(number, 1, STEADY, 9000.0 if number == 10 else tps_of(STEADY, number)))
    assert (wild.left(), run(wild)) == (0, [])


def test_sample_of_a_cell_that_is_not_measured_any_more() -> None:
    todo = Schedule([STEADY], PRESET, 1)
    todo.add(measured(1, 1, NOISY, 100.0))
    assert todo.measured() == 1
    assert todo.left() == 20
