"""Commands killed at random moments: what the next one finds. benchmarks/killed_* do it more."""

from pathlib import Path

import pytest

from benchmarks import killing
from wallab.progress import Work

pytestmark = pytest.mark.stack

MATRIX = """
[experiment.killed]
title = "killed"
source = "18"
workload = "tpcb-like"
rows = ["variant", "write_cache"]
column = "sync"
[experiment.killed.axes]
variant = ["stock"]
write_cache = ["off", "on"]
sync = ["fdatasync", "open_datasync"]
[experiment.killed.drive.wal]
profile = "ata-2005"
size_mb = 512
[experiment.killed.drive.data]
profile = "ata-2005"
size_mb = 512
write_cache = "on"
[experiment.killed.settings]
max_wal_size = "64MB"
min_wal_size = "64MB"
[experiment.killed.preset.smoke]
about = "for tests"
scale = 1
clients = 2
transactions = 5
warm_up_seconds = 0
rounds = 3
"""


def test_drives_by_hand() -> None:
    with Work("kills") as work:
        counts = killing.drives(6, 20050722, work)
    assert counts.total() == 6


@pytest.mark.usefixtures("servers")
def test_runs(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(MATRIX)
    with Work("kills") as work:
        counts = killing.runs(
            2,
            20050722,
            ["killed", "--preset", "smoke"],
            ["--matrix", matrix],
            tmp_path,
            work,
            within=12,
        )
    assert counts.total() == 2
