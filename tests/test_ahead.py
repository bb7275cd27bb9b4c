"""Samples taken several at a time: the same ones as one by one, whatever takes how long."""

import threading
import time

import msgspec
import pytest

from wallab.bench.ahead import Ahead
from wallab.bench.run import turns_of
from wallab.bench.schedule import Schedule
from wallab.errors import MachineError
from wallab.record import matrix
from wallab.record.experiment import Cell
from wallab.record.manifest import BedReport
from wallab.record.measured import Measured
from wallab.record.samples import Sample


class SlowBed:
    """Takes its time, some cells more than others; a sample follows from what it is of."""

    def __init__(self, fails: tuple[int, int] | None = None) -> None:
        self.methods: dict[str, tuple[str, ...]] = {}
        self.most = 0
        self.taken = 0
        self.closed = False
        self._now = 0
        self._lock = threading.Lock()
        self._fails = fails

    def open(self) -> BedReport:
        return BedReport({}, {})

    def lacks(self, cell: Cell) -> str:
        return ""

    def sample(
        self, cell: Cell, round_number: int, position: int, *, control: bool = False
    ) -> Sample:
        with self._lock:
            self._now += 1
            self.taken += 1
            self.most = max(self.most, self._now)
        chance = hash((tuple(sorted(map(len, cell.values()))), round_number, control)) % 7
        time.sleep(chance / 1000)
        with self._lock:
            self._now -= 1
        if (round_number, position) == self._fails:
            raise MachineError("broken")
        # Some are precise early, others are not.
        tps = 100.0 + (chance if "open" in cell["sync"] else 0) * 10 + round_number % 2
        return Sample(
            cell=cell, round=round_number, position=position, started="", state="measured",
            control=control, figures=Measured(tps, 300, 0, 1.0, 1.0),
        )  # fmt: skip

    def close(self) -> None:
        self.closed = True


def taken(jobs: int, bed: SlowBed) -> list[Sample]:
    """All samples of a run with the stopping rule."""
    experiment, preset = matrix.choose(matrix.read(), "thread", "smoke")
    preset = msgspec.structs.replace(preset, rounds=15, precision=3.0)
    cells = matrix.cells(experiment, preset)
    schedule = Schedule(turns_of(cells, cells[1]), preset, 5)
    samples = []
    with Ahead(bed, jobs) as ahead:
        for _ in schedule.pending():
            sample = ahead.sample(schedule.pending)
            schedule.add(sample)
            samples.append(sample)
    return samples


@pytest.mark.parametrize("jobs", [2, 3, 8])
def test_the_number_of_jobs_changes_no_sample(jobs: int) -> None:
    alone, together = SlowBed(), SlowBed()
    samples = taken(1, alone)
    assert taken(jobs, together) == samples
    assert 1 < together.most <= jobs
    assert alone.most == 1
    assert alone.taken == len(samples) <= together.taken
    assert together.closed


def test_what_breaks_is_told_when_its_turn_comes_and_ends_the_others() -> None:
    bed = SlowBed(fails=(2, 3))
    with pytest.raises(MachineError, match="broken"):
        taken(3, bed)
    assert bed.closed
