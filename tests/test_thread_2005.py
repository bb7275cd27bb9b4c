"""The thread's table on a test bed of 2005: memory held by a control group, data partly on disk."""

from pathlib import Path
from typing import Any

import pytest
from smallrun import run_small

from wallab.machine import memorygroup
from wallab.record import matrix, reference, values
from wallab.record.drivereading import DriveReading
from wallab.record.measured import Measured
from wallab.record.samples import Sample

MEMORY_MB = 96
SMALL = f"""
[experiment.small]
title = "small"
source = "18"
workload = "tpcb-like"
rows = ["variant"]
column = "sync"
values = ["tps", "data_reads", "data_busy", "memory_limit_mb"]
memory_mb = 1024
initdb = ["--no-data-checksums"]
[experiment.small.axes]
variant = ["both"]
sync = ["open_datasync"]
[experiment.small.drive.wal]
profile = "ata-2005"
size_mb = 1024
write_cache = "off"
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 1024
write_cache = "on-unflushed"
[experiment.small.settings]
shared_buffers = "8MB"
max_wal_size = "128MB"
autovacuum = "off"
[experiment.small.preset.smoke]
about = "for tests"
scale = 12
memory_mb = {MEMORY_MB}
clients = 4
transactions = 25
warm_up_seconds = 0
rounds = 1
"""


def test_every_preset_has_as_much_memory_for_its_data() -> None:
    experiment = matrix.find(matrix.read(), "thread-2005")
    shares = {
        name: (matrix.memory_mb(experiment, preset) or 0) / preset.scale
        for name, preset in experiment.preset.items()
    }
    assert shares == dict.fromkeys(experiment.preset, 1024 / 100)


def test_full_is_the_threads_run_of_its_own_cells() -> None:
    experiment, full = matrix.choose(matrix.read(), "thread-2005", "full")
    assert (full.scale, full.clients, full.transactions, full.rounds) == (100, 50, 200, 20)
    published = reference.load("thread")
    cells = matrix.cells(experiment, full)
    for row in published.row:
        for column in row.keys() - {"at"}:
            assert row["at"] | {"sync": column} in cells
    # No row but the thread's.
    assert {(cell["variant"], cell["write_cache"]) for cell in cells} == {
        (row["at"]["variant"], row["at"]["write_cache"]) for row in published.row
    }


def sample(**changed: Any) -> Sample:
    """100 transactions in 2 s, with 150 reads of the data drive, which was busy for 1.5 s."""
    counters = {"reads": 150, "writes": 20, "busy_ns": 1_500_000_000}
    about: dict[str, Any] = {
        "cell": {"variant": "both", "write_cache": "off", "sync": "fsync=false"},
        "round": 1,
        "position": 1,
        "started": "2026-01-01T00:00:00Z",
        "state": "measured",
        "figures": Measured(50.0, 100, 0, 1.0, 1.0),
        "drive": {"data": DriveReading(counters, {})},
    }
    return Sample(**about | changed)


def test_what_the_data_drive_did() -> None:
    assert values.of(sample(), "data_reads") == 1.5
    assert values.of(sample(), "data_writes") == 0.2
    assert values.of(sample(), "data_busy") == 75.0
    # It was still at work when the last transaction had ended.
    late = sample(drive={"data": DriveReading({"busy_ns": 2_100_000_000}, {})})
    assert values.of(late, "data_busy") == 100.0
    assert values.of(late, "data_reads") is None
    assert values.of(sample(drive={}), "data_busy") is None


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_memory_is_limited_and_the_data_drive_is_read(tmp_path: Path) -> None:
    if reason := memorygroup.lacking():
        pytest.skip(reason)
    ran = run_small(SMALL, tmp_path)
    (measured,) = ran.samples
    assert measured.figures is not None
    assert measured.figures.transactions == 100
    assert measured.values["memory_limit_mb"] == MEMORY_MB
    # 180 MB of data do not fit, although they have been read before.
    (template,) = ran.plan.templates.values()
    assert template["data_checksums"] == "off"
    assert template["bytes"] > 1.5 * (MEMORY_MB << 20)
    assert measured.drive["data"].counters["reads"] > 0
