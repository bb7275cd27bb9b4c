"""bonnie++ and sysbench beside the server: their reports are read, and they run on the drive."""

from pathlib import Path

import pytest
from smallrun import run_small

from wallab.bench.pgbench import RunFailed
from wallab.bench.workloads import bonnie, sysbench
from wallab.machine import memorygroup

# As the programs of Debian 12 print it.
CSV = (
    "1.98,2.00a,lab,1,1795302783,256M,8k,1024,5,,,51234,9,20480,7,,,60000,8,118.5,3,"
    "1,,,,,1985,7,+++++,+++,3100,12,2001,8,+++++,+++,2900,11,"
    ",8000us,24099us,,17516us,29299us,27611us,58us,2608us,11126us,15us,11234us\n"
)

REPORT = """
[ 1s ] reads: 0.00 MiB/s writes: 8.00 MiB/s fsyncs: 21.00/s latency (ms,95%): 0.027
[ 2s ] reads: 0.00 MiB/s writes: 4.00 MiB/s fsyncs: 10.00/s latency (ms,95%): 0.127

File operations:
    reads/s:                      0.00
    writes/s:                     384.50
    fsyncs/s:                     15.50

Throughput:
    read, MiB/s:                  0.00
    written, MiB/s:               6.01

General statistics:
    total time:                          2.0000s
    total number of events:              800

Latency (ms):
         min:                                    0.00
         avg:                                    20.55
         max:                                  142.20
         95th percentile:                        61.03
         sum:                                23914.34
"""


def test_csv_of_bonnie() -> None:
    outcome = bonnie.outcome(CSV, 90.0)
    assert (outcome.figures.tps, outcome.figures.transactions) == (118.5, 1024)
    assert outcome.figures.seconds == 90
    assert outcome.values == pytest.approx(
        {
            "file_write_mb_s": 51234 * 1024 / 1e6,
            "file_rewrite_mb_s": 20480 * 1024 / 1e6,
            "file_read_mb_s": 60000 * 1024 / 1e6,
            "creates_s": 1985,
        }
    )


def test_what_bonnie_could_not_tell() -> None:
    assert "file_read_mb_s" not in bonnie.outcome(CSV.replace("60000", "+++++"), 1.0).values
    with pytest.raises(RunFailed, match="seeks were over too soon"):
        bonnie.outcome(CSV.replace("118.5", "+++++"), 1.0)
    for damaged in ("", "Can't open file\n", CSV[:40], CSV.replace("1.98,", "3.11,", 1)):
        with pytest.raises(RunFailed, match="no CSV of format"):
            bonnie.outcome(damaged, 1.0)


def test_report_of_sysbench() -> None:
    outcome = sysbench.outcome(REPORT)
    assert (outcome.figures.tps, outcome.figures.transactions) == (384.5, 769)
    assert (outcome.figures.latency_ms, outcome.figures.seconds) == (20.55, 2.0)
    assert outcome.values == pytest.approx(
        {"file_write_mb_s": 6.01 * 1.048576, "fsyncs_s": 15.5, "file_p95_ms": 61.03}
    )
    assert outcome.series["rate"].seconds == (1.0, 2.0)
    assert outcome.series["rate"].figures == (512.0, 256.0)


@pytest.mark.parametrize("lost", ["writes/s", "total time", "avg:", "95th"])
def test_figure_that_sysbench_did_not_print(lost: str) -> None:
    cut = "\n".join(line for line in REPORT.splitlines() if lost not in line)
    with pytest.raises(RunFailed, match="sysbench's report has no"):
        sysbench.outcome(cut)


SMALL = """
[experiment.small]
title = "small"
source = "18"
workload = "tpcb-like"
rows = ["workload", "profile"]
column = "barriers"
relative_to = "off"
values = ["rate", "cpu_percent", "file_write_mb_s", "file_read_mb_s", "creates_s", "fsyncs_s"]
series = ["rate", "drive_cache_mb"]
[experiment.small.axes]
workload = ["tpcb-like", "bonnie", "sysbench"]
profile = ["ata-2005", "raid-bbwc"]
barriers = ["off", "on"]
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 1024
filesystem = "ext4"
[experiment.small.settings]
max_wal_size = "128MB"
min_wal_size = "128MB"
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
files_mb = 128
clients = 2
seconds = 2
warm_up_seconds = 0
rounds = 1
only = [
  { workload = ["tpcb-like", "sysbench"], profile = "raid-bbwc" },
  { workload = "bonnie", profile = "ata-2005", barriers = "on" },
]
"""


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_programs_run_on_the_drive_and_are_looked_at_over_time(tmp_path: Path) -> None:
    ran = run_small(SMALL, tmp_path)
    samples = {(s.cell["workload"], s.cell["barriers"]): s for s in ran.samples}
    without_bonnie = bool(memorygroup.lacking())
    assert len(samples) == (4 if without_bonnie else 5)
    for (workload, barriers), sample in samples.items():
        profile = sample.cell["profile"]
        assert sample.read_back == {"profile": profile, "barriers": barriers}
        # A battery keeps the cache in either case; what differs is whether the kernel flushes it.
        kept = "battery" if profile == "raid-bbwc" else "on"
        assert sample.write_cache["data"]["drive"] == kept
        counters = sample.drive["data"].counters
        assert (counters["flushes"] > 0) == (barriers == "on"), sample.cell
        assert counters["writes"] > 0
        seen = sample.series["drive_cache_mb"]
        assert seen.limit is not None
        assert seen.limit == pytest.approx(1073.7 if kept == "battery" else 8.4, abs=0.1)
        # What is seen at a look may be on the platters again: the drive itself knows the most.
        assert counters["dirty_bytes_max"] > 0
        assert all(0 <= figure <= seen.limit for figure in seen.figures)
        assert len(seen.seconds) == len(seen.figures) >= 2
        assert sample.figures is not None
        assert sample.figures.tps > 0
        if workload == "sysbench":
            assert sample.values["fsyncs_s"] > 0
            assert sample.values["file_write_mb_s"] > 0
        if workload == "bonnie":
            assert sample.figures.transactions == 2048
    assert (ran.folder / "time.svg").exists()
    assert "was not as asked" not in ran.table
