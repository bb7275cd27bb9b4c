"""sysbench's fileio beside the server: random writes to files on the drive of the data."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from wallab.bench.gauges import MB
from wallab.bench.pgbench import Measured, RunFailed
from wallab.bench.timeline import Series
from wallab.bench.workloads import files
from wallab.bench.workloads.base import Outcome
from wallab.bench.workloads.files import FileWorkload
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed
    from wallab.record.matrix import Preset

FILES = 4
"""Over which sysbench spreads its data; its own 128 are for larger disks."""

_FIGURE = r"^\s*{}:?\s+([\d.]+)"
_SECOND = re.compile(r"^\[ (\d+)s \] .*writes: ([\d.]+) MiB/s", re.MULTILINE)
BLOCK = 16 << 10
"""Bytes of a request, sysbench's default."""


class Sysbench(FileWorkload):
    """Random writes, and an fsync of all files after every 100 of them, as sysbench does alone."""

    packages: ClassVar[dict[str, str]] = {"sysbench": "sysbench"}

    def _command(self, preset: "Preset", *further: str) -> list[str | Path]:
        return [
            files.program("sysbench"),
            "fileio",
            f"--file-total-size={preset.files_mb}M",
            f"--file-num={FILES}",
            *further,
        ]

    def prepare(self, bed: "TestBed", preset: "Preset") -> None:
        """Write the files, and wait until they are on the drive."""
        folder = files.folder(bed)
        bed.run_program(self._command(preset, "prepare"), folder)
        bed.run_program(["sync", "-f", folder], folder)

    def measure(self, bed: "TestBed", conditions: Conditions, preset: "Preset") -> Outcome:
        amount = (
            [f"--time={preset.seconds}", "--events=0"]
            if preset.seconds
            else ["--time=0", f"--events={(preset.transactions or 1) * conditions.clients}"]
        )
        said, _ = bed.run_program(
            self._command(
                preset,
                "--file-test-mode=rndwr",
                f"--threads={conditions.clients}",
                "--report-interval=1",
                *amount,
                "run",
            ),
            files.folder(bed),
        )
        return outcome(said)

    def amount(self, preset: "Preset") -> str:
        return f"sysbench fileio of {preset.files_mb} MB"


def outcome(said: str) -> Outcome:
    """Read what sysbench (1.0) printed of a run; RunFailed if a figure is missing."""

    def figure(name: str) -> float:
        found = re.search(_FIGURE.format(name), said, re.MULTILINE)
        if not found:
            raise RunFailed(f"sysbench's report has no {name}: {said.strip()[-300:]}")
        return float(found[1])

    writes, seconds = figure("writes/s"), figure("total time")
    seen = [(float(second), float(mib)) for second, mib in _SECOND.findall(said)]
    series = {}
    if seen:
        # Told as MiB a second: requests of so many bytes.
        ends, rates = zip(*((at, mib * (1 << 20) / BLOCK) for at, mib in seen), strict=True)
        series["rate"] = Series(ends, tuple(round(one, 1) for one in rates))
    return Outcome(
        Measured(writes, round(writes * seconds), 0, figure("avg"), 0.0, lasted_s=seconds),
        values={
            "file_write_mb_s": figure("written, MiB/s") * (1 << 20) / MB,
            "fsyncs_s": figure("fsyncs/s"),
            "file_p95_ms": figure("95th percentile"),
        },
        series=series,
    )
