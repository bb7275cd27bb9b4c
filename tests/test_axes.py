"""Axes: their values, what they ask of the test bed, and that the machine is as it was after."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from smallrun import run_small

from wallab import axes, ledger, matrix, paths
from wallab.conditions import Conditions
from wallab.errors import LabError
from wallab.ledger import Ledger
from wallab.leftovers import wait_for_nothing
from wallab.simulated import SimulatedDrive

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
    ("axis", "value", "said"),
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
        ("cpus", "0", "a whole number of at least 1"),
        ("scale", "ten", "a whole number of at least 1"),
        ("clients", "1.5", "a whole number of at least 1"),
    ],
)
def test_value_that_an_axis_does_not_have(axis: str, value: str, said: str) -> None:
    with pytest.raises(LabError, match=said):
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
        "setting.work_mem": "1MB",
    }  # fmt: skip
    asked = axes.apply(cell, Conditions(scale=1, clients=1, settings={"a": "b"}))
    assert asked == Conditions(
        scale=7, clients=3, variant="both", source="17", write_cache="on", profile="p",
        filesystem="ext4", read_ahead=256, cpus=2,
        settings={"a": "b", "wal_sync_method": "fsync", "work_mem": "1MB"},
    )  # fmt: skip
    assert asked.server == "17/both"


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
    lacking = {one.reason for one in ran.plan.not_applicable}
    assert "the server does not take io_method = nonsense" in lacking
    assert any(reason.startswith("this machine has ") for reason in lacking)
    for reason in lacking:
        assert f"(N/A): {reason}." in table
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
            file = drive.loop.queue / "read_ahead_kb"
            assert file.read_text().strip() == "0"
        finally:
            drive.close()
        assert int(file.read_text()) * 2 == before
    finally:
        owned.close()


KILLED = """
import os, signal
from wallab.ledger import Ledger
from wallab.simulated import SimulatedDrive
drive = SimulatedDrive("data", "ata-2005", 1 << 30, "xfs", Ledger.open("test-killed"))
before = (drive.loop.queue / "read_ahead_kb").read_text().strip()
drive.set_read_ahead(0)
print(drive.loop.queue / "read_ahead_kb", before, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_read_ahead_is_put_back_after_a_kill() -> None:
    command = [sys.executable, "-c", KILLED]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=paths.LAB)
    assert result.returncode == -9, result.stderr
    file, before = result.stdout.split()
    ledger.clear_dead()
    assert Path(file).read_text().strip() == before
    assert wait_for_nothing() == {}


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
    for sample in ran.samples:
        assert sample.read_back["cpus"] == "1"
        assert sample.values["context_switches_per_tx"] > 0
        assert sample.wal is not None
        if sample.cell["workload"] == "tpcb-like":
            assert sample.wal.writes
    assert "context switches/tx" in ran.table
