"""Axes: their values, what they ask of the test bed, and that the machine is as it was after."""

import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import msgspec
import pytest
from smallrun import run_small

from benchmarks.leftovers import wait_for_nothing
from wallab import paths
from wallab.drives.simulated import SimulatedDrive
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import ledger, memorygroup
from wallab.machine.ledger import Ledger
from wallab.machine.loop import Attached, Queue
from wallab.machine.memorygroup import Group
from wallab.record import axes, manifest, matrix
from wallab.record.conditions import Conditions, DriveConditions
from wallab.record.experiment import DriveSpec
from wallab.record.samples import SampleFile

SMALL = """
[experiment.small]
title = "small"
source = "18"
workload = "tpcb-like"
rows = ["file_system", "read_ahead", "setting.io_method"]
column = "cpus"
[experiment.small.axes]
file_system = ["ext4", "xfs"]
read_ahead = ["0", "512"]
cpus = ["1", "4096"]
"setting.io_method" = ["sync", "worker", "nonsense"]
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 1024
write_cache = "on"
[experiment.small.settings]
max_wal_size = "128MB"
min_wal_size = "128MB"
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
clients = 2
transactions = 5
warm_up_seconds = 0
rounds = 1
only = [
  { file_system = "ext4", read_ahead = "0", "setting.io_method" = ["sync", "nonsense"] },
  { file_system = "xfs", read_ahead = "512", "setting.io_method" = "worker" },
]
"""


@pytest.mark.parametrize(
    ("axis", "value", "message"),
    [
        ("variant", "bath", "unknown value “bath”; expected one of stock"),
        ("write_cache", "maybe", "expected one of off, on"),
        ("sync", "open_synk", "expected one of fsync=false"),
        ("source", " ", "expected the name of a source"),
        ("profile", "ata-1905", "no drive profile"),
        ("file_system", "ntfs", "expected one of xfs"),
        ("read_ahead", "255", "an even number of sectors"),
        ("read_ahead", "-2", "a whole number of at least 0"),
        ("read_ahead", "0256", "a whole number"),
        ("barriers", "perhaps", "expected one of on, off"),
        ("workload", "dbt2", "unknown “dbt2”; expected tpcb-like"),
        ("archive", "rsync", "expected one of off, cp, direct_cp"),
        ("warehouses", "0", "a whole number of at least 1"),
        ("cpus", "0", "a whole number of at least 1"),
        ("scale", "ten", "a whole number of at least 1"),
        ("clients", "1.5", "a whole number of at least 1"),
        ("rate", "0", "a whole number of at least 1"),
        ("rate", "half", "a whole number of at least 1"),
        ("think", "-1", "a whole number of at least 0"),
        ("think", "0.5", "a whole number of at least 0"),
    ],
)
def test_value_that_an_axis_does_not_have(axis: str, value: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        axes.find(axis).check(value)


def test_axis_that_there_is_not() -> None:
    with pytest.raises(LabError, match=r"unknown axis “colour”; expected variant, .*setting\.NAME"):
        axes.find("colour")
    with pytest.raises(LabError, match="“a b” is no name of a setting"):
        axes.find("setting.a b")


def test_cell_says_what_it_asks_for() -> None:
    cell = {
        "source": "17", "variant": "both", "write_cache": "on", "sync": "fsync", "profile": "p",
        "file_system": "ext4", "read_ahead": "256", "cpus": "2", "scale": "7", "clients": "3",
        "rate": "50", "think": "20", "setting.work_mem": "1MB",
    }  # fmt: skip
    experiment = matrix.read().experiment["thread"]
    experiment = msgspec.structs.replace(experiment, settings={"a": "b"})
    asked = matrix.conditions(experiment, experiment.preset["quick"], cell)
    assert asked == Conditions(
        scale=7, clients=3, workload="tpcb-like", variant="both", source="17", cpus=2,
        archive=None, settings={"a": "b", "wal_sync_method": "fsync", "work_mem": "1MB"},
        drives={name: DriveConditions("p", "ext4", "on", (), 256) for name in ("wal", "data")},
        rate=50, think_ms=20,
    )  # fmt: skip
    assert asked.server == "17/both"


DISK = DriveSpec(profile="ata-2005", filesystem="xfs")
KEPT = DriveSpec(profile="raid-bbwc", filesystem="xfs")


@pytest.mark.parametrize(
    ("spec", "barriers", "expected"),
    [
        (DISK, "on", ("on", ())),
        (DISK, "off", ("on-unflushed", ())),
        (msgspec.structs.replace(DISK, filesystem="ext4"), "off", ("on", ("nobarrier",))),
        (KEPT, "on", ("battery-flushed", ())),
        (KEPT, "off", ("battery", ())),
        (
            msgspec.structs.replace(KEPT, filesystem="btrfs"),
            "off",
            ("battery-flushed", ("nobarrier",)),
        ),
    ],
)
@pytest.mark.parametrize("by_axis", [False, True])
def test_barriers_see_what_a_drive_is_made_of(
    spec: DriveSpec, barriers: str, expected: tuple[str, tuple[str, ...]], by_axis: bool
) -> None:
    """Whether an axis decides the profile and the file system, or they are fixed."""
    experiment, preset = matrix.choose(matrix.read(), "file-systems", "quick")
    cell = {"barriers": barriers}
    if by_axis:
        cell |= {"profile": spec.profile, "file_system": spec.filesystem}
        spec = DriveSpec(profile="nvme-plp", filesystem="ext4")
    experiment = msgspec.structs.replace(experiment, drive={"data": spec})
    drive = matrix.conditions(experiment, preset, cell).drives["data"]
    assert (drive.write_cache, drive.mount_options) == expected


def test_experiment_that_compares_sources_takes_no_other() -> None:
    experiment = matrix.read().experiment["thread"]
    assert matrix.with_source(experiment, "17").source == "17"
    several = msgspec.structs.replace(experiment, axes=experiment.axes | {"source": ("17", "18")})
    with pytest.raises(LabError, match="compares sources"):
        matrix.with_source(several, "17")


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_axes_are_set_read_back_and_na_with_the_reason(tmp_path: Path) -> None:
    ran = run_small(SMALL, tmp_path)
    table, samples = ran.table, ran.samples
    assert sorted(sample.cell["setting.io_method"] for sample in samples) == ["sync", "worker"]
    for sample in samples:
        assert sample.read_back == sample.cell
        assert sample.drive["data"].counters["writes"] > 0
    lacking = {cell.reason for cell in ran.plan.not_applicable}
    assert "the server does not take io_method = nonsense" in lacking
    assert any(reason.startswith("this machine has ") for reason in lacking)
    for reason in lacking:
        # Of a cell, or of a row that is left out as a whole.
        assert re.search(rf"(\(N/A\)|row .*): {re.escape(reason)}\.", table), reason
    assert "was not as asked" not in table


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_read_ahead_is_put_back() -> None:
    owned = Ledger.open("test-read-ahead")
    try:
        drive = SimulatedDrive("data", "ata-2005", 1 << 30, "xfs", owned)
        try:
            before = drive.read_ahead()
            drive.set_read_ahead(1024)
            assert drive.read_ahead() == 1024
            drive.set_read_ahead(None)
            assert drive.read_ahead() == before
            drive.set_read_ahead(0)
            file = drive.loop.queue.folder / "read_ahead_kb"
            assert file.read_text().strip() == "0"
        finally:
            drive.close()
        assert int(file.read_text()) * 2 == before
    finally:
        owned.close()


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_an_elevator_is_the_drives() -> None:
    owned = Ledger.open("test-elevator")
    try:
        drive = SimulatedDrive(
            "data", "ata-2005", 512 << 20, "xfs", owned, elevator="anticipatory"
        )  # fmt: skip
        try:
            assert drive.control.ask("state")["parameters"]["scheduler"] == "anticipatory"
        finally:
            drive.close()
    finally:
        owned.close()


KILLED = """
import os, signal
from wallab.machine.ledger import Ledger
from wallab.drives.simulated import SimulatedDrive
drive = SimulatedDrive("data", "ata-2005", 1 << 30, "xfs", Ledger.open("test-killed"))
before = (drive.loop.queue.folder / "read_ahead_kb").read_text().strip()
# In this order, as a sample has it: the kernel forgets its read-ahead when told of the cache.
drive.set_write_cache("on-unflushed")
drive.set_read_ahead(0)
print(drive.loop.queue.folder, before, drive.read_ahead(), drive.loop.cache_mode, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_settings_of_the_device_are_put_back_after_a_kill() -> None:
    command = [sys.executable, "-c", KILLED]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=paths.LAB)
    assert result.returncode == -9, result.stderr
    queue, before, *set_to = result.stdout.split()
    assert set_to == ["0", "write", "through"]
    ledger.clear_dead()
    assert (Path(queue) / "read_ahead_kb").read_text().strip() == before
    assert (Path(queue) / "write_cache").read_text().strip() == "write back"
    assert wait_for_nothing() == {}


EVERY = """
[experiment.small]
title = "small"
source = "18"
workload = "tpcb-like"
rows = ["source", "variant", "sync", "profile", "file_system", "barriers", "read_ahead",
        "workload", "archive", "scale", "clients", "rate", "think", "setting.work_mem"]
column = "cpus"
memory_mb = 512
[experiment.small.axes]
source = ["18"]
variant = ["both"]
sync = ["open_direct"]
profile = ["ata-2005-2mb"]
file_system = ["xfs"]
barriers = ["off"]
read_ahead = ["0"]
cpus = ["1"]
workload = ["simple-update"]
archive = ["cp"]
scale = ["1"]
clients = ["2"]
rate = ["200"]
think = ["1"]
"setting.work_mem" = ["1MB"]
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 1024
[experiment.small.settings]
max_wal_size = "128MB"
min_wal_size = "128MB"
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
clients = 1
transactions = 5
warm_up_seconds = 0
rounds = 500
"""

TOLD_BY_OTHER_FIELDS = {
    "source", "variant", "sync", "workload", "scale", "clients", "rate", "think",
}  # fmt: skip
"""Axes whose value is not asked of the machine: builds and figures have it."""


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_every_axis_is_read_back_and_put_back_after_a_kill(tmp_path: Path) -> None:
    """All at once: what a killed run had set is as before when the next start has cleared up."""
    text = EVERY.replace("memory_mb = 512", "") if memorygroup.lacking() else EVERY
    (tmp_path / "matrix.toml").write_text(text)
    folder = tmp_path / "out"
    command = [str(paths.LAB / "scripts" / "run-matrix"), "small", "--preset", "smoke", "--matrix",
               str(tmp_path / "matrix.toml"), "--output", str(folder)]  # fmt: skip
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    samples = SampleFile(folder / "samples.jsonl")
    deadline = time.monotonic() + 300
    while not samples.read():
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    child.kill()
    child.wait(60)
    sample = samples.read()[0]
    assert sample.error == ""
    expected = {
        axis: value for axis, value in sample.cell.items() if axis not in TOLD_BY_OTHER_FIELDS
    }
    assert sample.read_back == expected
    assert set(manifest.load(folder).builds) == {"18/both"}
    assert sample.figures is not None
    assert sample.figures.transactions == 10
    assert sample.figures.lag is not None
    records = [jsonfile.load(file, ledger.Record) for file in ledger.dead()]
    owned = [thing for record in records for thing in record.owned]
    loops = [thing for thing in owned if isinstance(thing, Attached)]
    groups = [thing for thing in owned if isinstance(thing, Group)]
    assert len(loops) == 1
    assert len(groups) == ("memory_mb" in text)
    ledger.clear_dead()
    for attached in loops:
        queue = Queue(attached.device)
        assert (queue.cache_mode, queue.read_ahead) == (attached.cache_mode, attached.read_ahead)
    assert not any(group.path.exists() for group in groups)
    assert wait_for_nothing() == {}


def test_no_axis_is_left_out_of_the_test_above() -> None:
    known = re.search(r"expected (.*), setting\.NAME", _said("colour"))
    assert known is not None
    # Barriers decide what write_cache would, and warehouses what scale and clients would.
    axes_there = set(known[1].split(", ")) - {"write_cache", "warehouses"}
    tested = set(tomllib.loads(EVERY)["experiment"]["small"]["axes"]) - {"setting.work_mem"}
    assert tested == axes_there


def _said(axis: str) -> str:
    """What is said of an axis that there is not."""
    with pytest.raises(LabError) as error:
        axes.find(axis)
    return str(error.value)


BARRIERS = """
[experiment.small]
title = "small"
source = "18"
workload = "tpcb-like"
rows = ["file_system", "profile"]
column = "barriers"
values = ["tps", "cpu_percent"]
[experiment.small.axes]
barriers = ["off", "on"]
file_system = ["ext4", "xfs", "btrfs"]
profile = ["ata-2005"]
[experiment.small.drive.data]
profile = "ata-2005-2mb"
size_mb = 1024
[experiment.small.drive.data.mkfs]
xfs = ["-d", "su=64k,sw=8"]
[experiment.small.settings]
max_wal_size = "128MB"
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
clients = 2
transactions = 4
warm_up_seconds = 0
rounds = 1
"""


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_barriers_decide_whether_the_drive_is_flushed(tmp_path: Path) -> None:
    ran = run_small(BARRIERS, tmp_path)
    assert len(ran.samples) == 6 - len(ran.plan.not_applicable)
    for sample in ran.samples:
        assert sample.read_back == sample.cell
        flushes = sample.drive["data"].counters["flushes"]
        assert (flushes > 0) == (sample.cell["barriers"] == "on"), sample.cell
    assert "was not as asked" not in ran.table
    assert "CPU, % of one core" in ran.table


SOURCES = """
[experiment.small]
title = "small"
source = "18"
workload = "tpcb-like"
rows = ["source", "workload", "scale", "clients"]
column = "cpus"
relative_to = "1"
values = ["tps", "context_switches_per_tx"]
[experiment.small.axes]
source = ["18"]
workload = ["tpcb-like", "select-only"]
scale = ["1", "2"]
clients = ["2", "3"]
cpus = ["1"]
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 1024
write_cache = "on"
[experiment.small.settings]
fsync = "off"
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
clients = 2
seconds = 2
warm_up_seconds = 0
rounds = 1
only = [
  { source = "18", workload = "tpcb-like", scale = "1", clients = "3" },
  { source = "18", workload = "select-only", scale = "2", clients = "2" },
]
"""


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_sources_and_sizes_have_templates_of_their_own(tmp_path: Path) -> None:
    ran = run_small(SOURCES, tmp_path)
    assert set(ran.plan.builds) == {"18/stock"}
    assert len(ran.samples) == 2
    assert set(ran.plan.templates) == {f"18-{cell['scale']}" for cell in ran.plan.cells}
    assert len(ran.plan.templates) > 1
    for sample in ran.samples:
        assert sample.read_back["cpus"] == "1"
        # One CPU for the server and another for the clients, where there are two.
        assert sample.values["client_cpus"] == (len(os.sched_getaffinity(0)) > 1)
        assert sample.values["context_switches_per_tx"] > 0
        assert sample.wal is not None
        if sample.cell["workload"] == "tpcb-like":
            assert sample.wal.writes
    assert "context switches/tx" in ran.table
