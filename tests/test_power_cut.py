"""Power cuts of real servers: what keeps its promises, what does not, and the command."""

import contextlib
import itertools
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.leftovers import leftovers, wait_for_nothing
from wallab import paths
from wallab.powercut import campaign
from wallab.powercut.campaign import CUTS
from wallab.powercut.controls import CONTROLS
from wallab.powercut.crew import Crew, Setup, Task
from wallab.powercut.cutcell import CutCell, LoadName
from wallab.powercut.cutrecord import CutRecord, RecordFile
from wallab.powercut.faultinjection import FAULTS
from wallab.record import series
from wallab.servers import builder, buildsystem
from wallab.servers.builder import Server
from wallab.servers.patches import Patch, patches_of
from wallab.servers.source import Source

pytestmark = pytest.mark.stack

JOBS = 2

ENOUGH = 40
"""Cuts within which a bad patch is caught: each does so with more than an even chance."""


def power_cut(*arguments: str | int | Path) -> subprocess.CompletedProcess[str]:
    """Run scripts/power-cut."""
    command = [str(paths.LAB / "scripts" / "power-cut"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200)


def cut_all(crew: Crew, tasks: list[Task]) -> list[CutRecord]:
    """Have the crew do all tasks."""
    left = iter(tasks)
    records: list[CutRecord] = []
    crew.run(lambda: next(left, None), records.append)
    assert [record.account for record in records if record.category == "failed"] == []
    return records


# --- the command ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_folder(servers: dict[str, Server], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of one honest cell, one that may lose, and the controls."""
    assert "both" in servers
    home = tmp_path_factory.mktemp("campaign")
    result = power_cut(
        "--variants", "both", "--cells", "write_cache=on", "--cells", "filesystem=xfs",
        "--cells", "sync=fsync=false,open_direct", "--cuts", "2", "--seed", "7",
        "--jobs", str(JOBS), "--traces", "all", "--output", home / "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    (home / "stdout").write_text(result.stdout)
    assert wait_for_nothing(30) == {}
    return home / "out"


def test_controls_lose_and_the_honest_cell_does_not(run_folder: Path) -> None:
    records = RecordFile(run_folder / CUTS).read()
    lost = {record.cell.control for record in records if record.category != "safe"}
    assert set(CONTROLS) <= lost
    honest = [record for record in records if record.cell.honest]
    assert [record.category for record in honest] == ["safe", "safe"]
    assert all(record.promised >= 5 for record in honest)
    printed = (run_folder.parent / "stdout").read_text()
    assert "No loss in 2 cuts of 1 cells" in printed
    assert printed == (run_folder / "table.txt").read_text()


def test_each_cut_keeps_its_trace(run_folder: Path) -> None:
    for record in RecordFile(run_folder / CUTS).read():
        trace = (run_folder / "traces" / record.trace).read_bytes()
        assert trace[:8] == b"WALDRIVE"
        assert len(trace) > 64


def test_finished_campaign_is_resumed_with_more_cuts(run_folder: Path) -> None:
    before = RecordFile(run_folder / CUTS).read()
    result = power_cut("--resume", run_folder, "--cuts", "3", "--jobs", "1", "--json")
    assert result.returncode == 0, result.stderr
    after = RecordFile(run_folder / CUTS).read()
    assert after[: len(before)] == before
    assert [record.cell.honest for record in after[len(before) :]] == [True]
    assert json.loads(result.stdout)["cuts"] == len(after)


def hear_interrupts() -> None:
    """What a child runs first: a job in the background starts deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stop_after_another_cut(folder: Path, how: signal.Signals, *arguments: str | Path) -> int:
    """Run scripts/power-cut, and send the signal when it has made a cut more; its exit code."""
    cuts = folder / CUTS
    before = cuts.read_bytes().count(b"\n") if cuts.exists() else 0
    child = subprocess.Popen(
        [str(paths.LAB / "scripts" / "power-cut"), *map(str, arguments)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=hear_interrupts,
    )  # fmt: skip
    deadline = time.monotonic() + 600
    while not (cuts.exists() and cuts.read_bytes().count(b"\n") > before):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(how)
    return child.wait(300)


@pytest.mark.usefixtures("servers")
def test_interrupted_and_killed_campaign_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    code = stop_after_another_cut(
        folder, signal.SIGINT, "--variants", "both", "--cells", "write_cache=on",
        "--cells", "filesystem=xfs", "--cells", "sync=fdatasync", "--cuts", "3", "--seed", "9",
        "--jobs", str(JOBS), "--traces", "none", "--output", folder,
    )  # fmt: skip
    assert code == 130
    assert wait_for_nothing(30) == {}
    code = stop_after_another_cut(folder, signal.SIGKILL, "--resume", folder, "--jobs", str(JOBS))
    assert code == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while leftovers()["processes"] and time.monotonic() < deadline:
        time.sleep(0.1)  # what dies with the killed command may take a moment
    result = power_cut("--resume", folder, "--jobs", JOBS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "left behind by an earlier run" in result.stderr
    records = RecordFile(folder / CUTS).read()
    honest = [record.number for record in records if record.cell.honest]
    assert len(honest) == 3
    assert len(set(honest)) == 3
    assert wait_for_nothing(30) == {}


# --- faults ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crew(servers: dict[str, Server]) -> Iterator[Crew]:
    """Workers with the server of the variant both."""
    with contextlib.closing(Crew(JOBS)) as workers:
        workers.open(
            Setup({"both": servers["both"].path}, ["xfs"], PROFILES, {}, seed=11, guest=True)
        )
        yield workers
    assert wait_for_nothing(30) == {}


PROFILES = {"wal": "ata-2005", "data": "ata-2005"}
HONEST = CutCell("both", "on", "fdatasync", "xfs")


def test_smaller_faults_lose_nothing(crew: Crew) -> None:
    others = [fault for fault in FAULTS if fault != "power"]
    records = cut_all(crew, [Task(HONEST, number, f) for number, f in enumerate(others, 1)])
    assert {r.fault: (r.category, r.account, r.details) for r in records} == dict.fromkeys(
        others, ("safe", "", ())
    )
    assert all(record.promised >= 5 for record in records)


def test_battery_keeps_what_nobody_flushed(crew: Crew) -> None:
    cells = [CutCell("both", "battery", method, "xfs") for method in ("open_direct", "fdatasync")]
    records = cut_all(crew, [Task(cell, 1, "power") for cell in cells])
    assert [record.category for record in records] == ["safe", "safe"]


# --- a reload of wal_sync_method ------------------------------------------------------------

RELOADS: list[tuple[LoadName, str, str]] = [
    ("reload", "fdatasync", "open_datasync"),
    ("reload", "open_sync", "fsync"),
    ("standby", "fdatasync", "open_datasync"),
    # Nothing to lose: what brings the standby to the first of them must leave no hole, either.
    ("standby", "open_sync", "open_datasync"),
]
HARMLESS = "open_sync", "open_datasync"
RELOAD_CELLS = [
    CutCell(variant, "on", old, "xfs", load=load, to=new)
    for variant in ("stock", "reload-sync")
    for load, old, new in RELOADS
]


def test_reload_loses_what_was_acknowledged_without_the_mend(servers: dict[str, Server]) -> None:
    trees = {name: servers[name].path for name in ("stock", "reload-sync")}
    left = [Task(cell, 1, "power") for cell in RELOAD_CELLS]
    records: dict[CutCell, CutRecord] = {}

    def finished(record: CutRecord) -> None:
        if record.category != "failed":
            records[record.cell] = record
        elif record.number < 5:  # it was too late for the window
            left.append(Task(record.cell, record.number + 1, "power"))

    with contextlib.closing(Crew(JOBS)) as crew:
        crew.open(Setup(trees, ["xfs"], PROFILES, {}, seed=17, guest=True))
        crew.run(lambda: left.pop(0) if left else None, finished)
    assert {cell: record.category for cell, record in records.items()} == {
        cell: "lost" if cell.variant == "stock" and (cell.sync, cell.to) != HARMLESS else "safe"
        for cell in RELOAD_CELLS
    }
    for cell, record in records.items():
        assert record.window is not None
        assert record.window.hit
        if cell.load == "reload" and cell.variant == "reload-sync":
            assert record.window.acknowledged_kb == 0


# --- known-bad patches ----------------------------------------------------------------------

BAD = {
    "unsynced": ("both", ["fsync-direct-unsynced", "open-direct-unsynced"]),
    "half-a-wrap": ("gather-ring", ["half-a-wrap"]),
}
"""Variant -> that of the lab which it is made of, and its mistakes in tests/bad-patches."""

BAD_CELLS = [
    CutCell("unsynced", "on", "fsync_direct", "xfs"),
    CutCell("unsynced", "on", "open_direct", "xfs"),
    CutCell("half-a-wrap", "on", "fdatasync", "xfs"),
]


@pytest.fixture(scope="module")
def bad_servers(source18: Source, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Servers of the lab's variants with mistakes."""
    folder = paths.LAB / "tests" / "bad-patches"
    variants = {
        variant: [
            *patches_of(series.read(), good, source18),
            *(Patch(name, folder / f"{name}.patch") for name in names),
        ]
        for variant, (good, names) in BAD.items()
    }
    system = buildsystem.choose("auto", source18)
    home = tmp_path_factory.mktemp("bad")
    built = builder.Builder(source18, system, home).build(variants)
    return {server.build.variant: server.path for server in built}


def test_bad_patches_are_caught(bad_servers: dict[str, Path]) -> None:
    caught: set[CutCell] = set()
    numbers = {cell: itertools.count(1) for cell in BAD_CELLS}

    def next_task() -> Task | None:
        for cell, count in numbers.items():
            if cell not in caught and (number := next(count)) <= ENOUGH:
                return Task(cell, number, "power")
        return None

    def finished(record: CutRecord) -> None:
        assert record.category != "failed", record.account
        if record.category != "safe":
            caught.add(record.cell)

    with contextlib.closing(Crew(JOBS)) as crew:
        crew.open(Setup(bad_servers, ["xfs"], PROFILES, {}, seed=13, guest=True))
        crew.run(next_task, finished)
    assert caught == set(BAD_CELLS)


def test_cells_know_what_they_have_to_keep() -> None:
    assert HONEST.honest
    assert not CutCell("both", "on", "fsync=false", "xfs").honest
    assert not CutCell("both", "on-unflushed", "fdatasync", "xfs").honest
    assert not any(cell.honest for cell in campaign.control_cells("both"))
