"""samples.jsonl: the raw samples of a run, appended and synced one by one."""

from pathlib import Path
from typing import Literal

import msgspec

from wallab.files.linefile import LineFile
from wallab.record.drivereading import DriveReading
from wallab.record.experiment import Cell
from wallab.record.gauges import GAUGES
from wallab.record.measured import Measured
from wallab.record.number import Count, Figure, Seconds
from wallab.record.timeseries import TimeSeries
from wallab.record.walcounters import WalCounters

SAMPLES = "samples.jsonl"


class CpuSeconds(msgspec.Struct, frozen=True):
    """Processor time, in user and in kernel mode, that was used while measuring."""

    server: Figure
    """By all of the server's processes."""
    client: Figure
    """By pgbench."""

    def since(self, earlier: "CpuSeconds") -> "CpuSeconds":
        """Return what was used since the earlier reading."""
        return CpuSeconds(
            round(self.server - earlier.server, 3), round(self.client - earlier.client, 3)
        )


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One measured run of a cell, or the account of why it failed."""

    cell: Cell
    round: Count
    """From 1."""
    position: Count
    """In the round, from 1."""
    started: str
    """UTC."""
    state: Literal["measured", "failed"]
    control: bool = False
    """Whether the cell was measured under its second name: an A/A control, and in no table."""
    error: str = ""
    figures: Measured | None = None
    wal: WalCounters | None = None
    drive: dict[str, DriveReading] = {}
    """Drive -> what it counted while measuring."""
    write_cache: dict[str, dict[str, str]] = {}
    """Drive -> its write cache and the kernel's belief, read back after measuring."""
    open_flags: dict[str, Count] = {}
    """How the kernel saw the WAL segment opened -> number of server processes."""
    read_back: dict[str, str] = {}
    """Axis -> the value in force, as the machine or the server told it."""
    values: dict[str, Figure] = {}
    """Further figures of the workload; `wallab.record.values` names them."""
    series: dict[str, TimeSeries] = {}
    """Gauge (`wallab.bench.gauges`) -> what it showed while measuring."""
    phases: dict[str, Seconds] = {}
    """Phase -> seconds it took: restore, start, read, warm_up, checkpoint, measure, count, stop."""
    warm_up: Measured | None = None
    """What pgbench reported of the warm-up, which no figure includes."""
    cpu_seconds: CpuSeconds | None = None

    def __post_init__(self) -> None:
        """ValueError for figures over time that no gauge is known for."""
        for name in self.series:
            if name not in GAUGES:
                raise ValueError(f"series: unknown gauge “{name}”; expected {', '.join(GAUGES)}")


class SampleFile(LineFile[Sample]):
    """samples.jsonl."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Sample, "sample", "scripts/run-matrix")
