"""Scans: cold, whole, and read from the drive as far ahead as the cell says."""

from pathlib import Path

import pytest
from smallrun import run_small

from wallab.bench.pgbench import RunFailed
from wallab.bench.workloads import scan
from wallab.record import matrix, reference
from wallab.record.workloads import SCAN_ROWS

EXPLAINED = [
    {
        "Plan": {
            "Node Type": "Seq Scan",
            "Actual Total Time": 2000.0,
            "Actual Rows": 10100000.0,
            "Shared Hit Blocks": 256,
            "Shared Read Blocks": 94137,
        },
        "Execution Time": 2500.0,
    }
]

SMALL = """
[experiment.small]
title = "small"
source = "18"
workload = "scan"
rows = ["setting.io_method"]
column = "read_ahead"
relative_to = "1024"
values = ["scan_ms", "drive_read_kb"]
[experiment.small.axes]
read_ahead = ["0", "1024"]
"setting.io_method" = ["sync"]
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 1024
write_cache = "on"
[experiment.small.settings]
autovacuum = "off"
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
clients = 1
transactions = 1
warm_up_seconds = 0
rounds = 1
"""


def test_figures_of_a_plan() -> None:
    outcome = scan.outcome(EXPLAINED)
    assert outcome.figures.latency_ms == 2500
    assert outcome.values["scan_ms"] == 2000
    assert outcome.values["scan_mb_s"] == pytest.approx(94137 * 8192 / 2e6)
    assert (outcome.values["blocks_read"], outcome.values["blocks_hit"]) == (94137, 256)


@pytest.mark.parametrize(
    "explained",
    [
        None,
        "Seq Scan",
        [],
        [*EXPLAINED, *EXPLAINED],
        [{"Plan": {}}],
        [{**EXPLAINED[0], "Execution Time": None}],
        [{**EXPLAINED[0], "Execution Time": 0}],
    ],
)
def test_what_a_patched_server_says_otherwise_fails_the_sample(explained: object) -> None:
    with pytest.raises(RunFailed, match="EXPLAIN"):
        scan.outcome(explained)


def test_published_figures_are_told_apart() -> None:
    experiment = matrix.read().experiment["read-ahead"]
    published = reference.load("read-ahead")
    cell = {
        "read_ahead": "0",
        "setting.io_method": "sync",
        "setting.io_combine_limit": "8kB",
    }
    assert published.figure(cell, experiment.column) == 18773.211
    assert published.figure(cell, experiment.column, "scan_mb_s") == 41.2
    assert published.figure(cell, experiment.column, "drive_read_kb") is None
    assert published.figure(cell | {"setting.io_method": "worker"}, experiment.column) is None


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_every_scan_is_cold_and_read_as_far_ahead_as_asked(tmp_path: Path) -> None:
    ran = run_small(SMALL, tmp_path)
    samples = {sample.cell["read_ahead"]: sample for sample in ran.samples}
    assert set(samples) == {"0", "1024"}
    for sample in samples.values():
        assert sample.values["rows"] == SCAN_ROWS
        blocks = sample.values["blocks_read"]
        assert blocks > 900
        assert sample.drive["data"].counters["sectors_read"] * 512 >= blocks * scan.BLOCK
    # Without read-ahead the kernel asks for the page that it needs, of 4 kB.
    assert samples["0"].values["drive_read_kb"] < 8
    assert samples["1024"].values["drive_read_kb"] > 64
    assert "scan, ms relative to read-ahead (sectors) 1024" in ran.table
