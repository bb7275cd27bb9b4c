"""The order in which a sample is taken, and its undoing wherever it fails: with mock parts."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from wallab.bench import sampling, workloads
from wallab.bench.pgbench import RunFailed
from wallab.bench.stage import Stage
from wallab.bench.workloads.base import Outcome
from wallab.errors import MachineError
from wallab.machine.memorygroup import MemoryGroup
from wallab.record import matrix
from wallab.record.drivereading import DriveReading
from wallab.record.measured import Measured
from wallab.record.samples import CpuSeconds, Sample, SampleFile
from wallab.record.walcounters import WalCounters
from wallab.servers.cluster import ServerFailed

CELL = {"variant": "both", "write_cache": "off", "sync": "open_direct"}
MEASURED = Measured(100.0, 1000, 0, 1.0, 1.0)

PREPARED = [
    "wal restore", "wal mount", "wal cache off", "data restore", "data mount", "data cache on",
    "start open_direct", "read", "wal timing on", "data timing on", "warm-up",
    "wal timing off", "data timing off", "CHECKPOINT", "wal timing on", "data timing on",
    "wal reset", "data reset", "count",
]  # fmt: skip
MEASURING = ["measure", "wal reading", "data reading", "count"]
UNDONE = ["wal timing off", "data timing off", "stop", "wal unmount", "data unmount",
          "wal forget", "data forget"]  # fmt: skip


class Journal:
    """What happened, in its order; what is to fail raises when it is due."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.failing: tuple[str, Exception] | None = None

    def note(self, event: str) -> None:
        """Write the event down."""
        self.events.append(event)
        if self.failing and self.failing[0] == event:
            error = self.failing[1]
            self.failing = None
            raise error


class MockDrive:
    """A drive that notes what is asked of it."""

    def __init__(self, name: str, journal: Journal) -> None:
        self.name = name
        self.mount_point = Path("/nonexistent") / name
        self._note: Callable[[str], None] = lambda event: journal.note(f"{name} {event}")

    def set_write_cache(self, state: str) -> None:
        self._note(f"cache {state}")

    def timing(self, on: bool) -> None:
        self._note(f"timing {'on' if on else 'off'}")

    def reading(self) -> DriveReading:
        self._note("reading")
        return DriveReading({}, {})

    def write_cache(self) -> dict[str, str]:
        return {}

    def set_read_ahead(self, kilobytes: object) -> None:
        """As the axis read_ahead has it."""

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self._note(name)


class MockCluster:
    """A cluster that notes what is asked of it."""

    complaint = ""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def start(self, server: Path, settings: dict[str, str], *_: Any) -> None:
        self._journal.note(f"start {settings['wal_sync_method']}")

    def read_into_memory(self) -> int:
        self._journal.note("read")
        return 0

    def stop(self, *_: Any) -> None:
        self._journal.note("stop")

    def complaints(self) -> str:
        return self.complaint

    @contextlib.contextmanager
    def connect(self) -> Iterator[Any]:
        yield self

    def execute(self, statement: str) -> None:
        self._journal.note(statement)


class MockWorkload:
    """Clients that note when they were at work."""

    cold = False
    checked = False

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def prepare(self, *_: Any) -> None:
        """Nothing is needed."""

    def warm_up(self, *_: Any) -> Measured:
        self._journal.note("warm-up")
        return MEASURED

    def measure(self, *_: Any) -> Outcome:
        self._journal.note("measure")
        return Outcome(MEASURED, {"O_DIRECT|O_SYNC": 3}, {})


@pytest.fixture
def journal() -> Journal:
    """Nothing has happened yet."""
    return Journal()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> Stage:
    """A stage of mock parts."""

    def count(connection: object) -> WalCounters:
        journal.note("count")
        return WalCounters(1, 1, 1, 1, 1)

    monkeypatch.setattr(sampling, "_cpu_seconds", lambda stage: CpuSeconds(1.0, 1.0))
    monkeypatch.setattr(workloads, "find", lambda name: MockWorkload(journal))
    monkeypatch.setattr(sampling, "read_counters", count)
    monkeypatch.setattr(sampling, "wait_until_alone", lambda connection: None)
    experiment, preset = matrix.choose(matrix.read(), "thread", "quick")
    drives: Any = {name: MockDrive(name, journal) for name in ("wal", "data")}
    cluster: Any = MockCluster(journal)
    conditions = matrix.conditions(experiment, preset, CELL)
    return Stage(conditions, preset, drives, cluster, Path("/nonexistent"))


def take(stage: Stage, *place: int) -> Sample:
    """Take a sample on the stage."""

    def no_groups(megabytes: int) -> MemoryGroup:
        raise AssertionError

    return sampling.take(stage, CELL, (place[0], place[1]), stage.conditions.settings, no_groups)


def test_nothing_is_undone_where_the_machine_ends(stage: Stage, journal: Journal) -> None:
    sample = take(dataclasses.replace(stage, last=True), 3, 7)
    assert journal.events == PREPARED + MEASURING
    assert sample.state == "measured"
    assert "stop" not in sample.phases


def test_the_order_of_a_sample(stage: Stage, journal: Journal, tmp_path: Path) -> None:
    sample = take(stage, 3, 7)
    assert journal.events == PREPARED + MEASURING + UNDONE
    assert (sample.state, sample.round, sample.position) == ("measured", 3, 7)
    assert sample.figures == sample.warm_up == MEASURED
    assert list(sample.phases) == [
        "restore", "start", "read", "warm_up", "checkpoint", "count", "measure", "stop",
    ]  # fmt: skip
    file = SampleFile(tmp_path / "samples.jsonl")
    file.append(sample)
    assert file.read() == [sample]


STEPS = [*dict.fromkeys(PREPARED + MEASURING)]


@pytest.mark.parametrize("step", STEPS)
def test_undone_wherever_the_machine_fails(stage: Stage, journal: Journal, step: str) -> None:
    journal.failing = (step, MachineError("broken"))
    with pytest.raises(MachineError, match="broken"):
        take(stage, 1, 1)
    order = PREPARED + MEASURING
    assert journal.events == order[: order.index(step) + 1] + UNDONE


def test_the_server_stops_also_if_a_drive_does_not_answer(
    stage: Stage, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(stage: Stage, on: bool) -> None:
        raise MachineError("no answer")

    monkeypatch.setattr(Stage, "timing", gone)
    with pytest.raises(MachineError, match="no answer"):
        take(stage, 1, 1)
    assert journal.events[-1] == "stop"


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("start open_direct", ServerFailed("no start")),
        ("warm-up", RunFailed("no warm-up")),
        ("measure", RunFailed("no measure")),
        ("measure", ServerFailed("gone")),
        # The server crashed: whoever asks it next learns so.
        ("CHECKPOINT", psycopg.OperationalError("server closed the connection unexpectedly")),
        ("count", psycopg.OperationalError("connection refused")),
    ],
)
def test_a_failed_run_is_a_sample_that_says_so(
    stage: Stage, journal: Journal, step: str, error: Exception
) -> None:
    journal.failing = (step, error)
    sample: Sample = take(stage, 1, 1)
    assert (sample.state, sample.error, sample.figures) == ("failed", str(error), None)
    assert journal.events[-len(UNDONE) :] == UNDONE
    assert "stop" in sample.phases
    # The next one starts as if nothing had been.
    journal.events.clear()
    assert take(stage, 1, 2).state == "measured"
    assert journal.events == PREPARED + MEASURING + UNDONE


def test_a_failed_run_has_what_the_server_said_of_it(
    stage: Stage, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.cluster, "complaint", "PANIC: could not write to file")
    journal.failing = ("measure", RunFailed("pgbench exited with 2: the connection was closed"))
    assert take(stage, 1, 1).error == (
        "pgbench exited with 2: the connection was closed; the server's log: "
        "PANIC: could not write to file"
    )
    journal.failing = ("start open_direct", ServerFailed("PANIC: could not write to file"))
    assert take(stage, 1, 1).error == "PANIC: could not write to file"
