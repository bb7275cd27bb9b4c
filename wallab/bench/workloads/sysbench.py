"""sysbench's fileio beside the server: random writes to files on the drive of the data."""

import re
from pathlib import Path
from typing import ClassVar

from wallab.bench.pgbench import RunFailed
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.bench.workloads import files
from wallab.bench.workloads.base import Outcome
from wallab.bench.workloads.files import FileWorkload
from wallab.record.gauges import MB
from wallab.record.measured import Measured
from wallab.record.timeseries import TimeSeries

FILES = 4
"""Over which sysbench spreads its data; its own 128 are for larger disks."""

_FIGURE = r"^\s*{}:?\s+([\d.]+)"
_SECOND = re.compile(r"^\[ (\d+)s \] .*writes: ([\d.]+) MiB/s", re.MULTILINE)
BLOCK = 16 << 10
"""Bytes of a request, sysbench's default."""


class Sysbench(FileWorkload):
    """Random writes, and an fsync of all files after every 100 of them, as sysbench does alone."""

    packages: ClassVar[dict[str, str]] = {"sysbench": "sysbench"}

    def _command(self, stage: Stage, *further: str) -> list[str | Path]:
        return [
            files.program("sysbench"),
            "fileio",
            f"--file-total-size={stage.preset.files_mb}M",
            f"--file-num={FILES}",
            *further,
        ]

    def prepare(self, stage: Stage, runner: Runner) -> None:
        """Write the files, and wait until they are on the drive."""
        super().prepare(stage, runner)
        folder = files.folder(stage)
        runner.program(self._command(stage, "prepare"), folder)
        runner.program(["sync", "-f", folder], folder)

    def measure(self, stage: Stage, runner: Runner) -> Outcome:
        preset, clients = stage.preset, stage.conditions.clients
        amount = (
            [f"--time={preset.seconds}", "--events=0"]
            if preset.seconds
            else ["--time=0", f"--events={(preset.transactions or 1) * clients}"]
        )
        output, _ = runner.program(
            self._command(
                stage,
                "--file-test-mode=rndwr",
                f"--threads={clients}",
                "--report-interval=1",
                *amount,
                "run",
            ),
            files.folder(stage),
        )
        return outcome(output)


def outcome(output: str) -> Outcome:
    """Read what sysbench (1.0) printed of a run; RunFailed if a figure is missing."""

    def figure(name: str) -> float:
        match = re.search(_FIGURE.format(name), output, re.MULTILINE)
        if not match:
            raise RunFailed(f"sysbench's report has no {name}: {output.strip()[-300:]}")
        return float(match[1])

    writes, seconds = figure("writes/s"), figure("total time")
    seen = [(float(second), float(mib)) for second, mib in _SECOND.findall(output)]
    series = {}
    if seen:
        # Told as MiB a second: requests of so many bytes.
        ends, rates = zip(*((at, mib * (1 << 20) / BLOCK) for at, mib in seen), strict=True)
        series["rate"] = TimeSeries(ends, tuple(round(rate, 1) for rate in rates))
    return Outcome(
        Measured(writes, round(writes * seconds), 0, figure("avg"), 0.0, lasted_s=seconds),
        values={
            "file_write_mb_s": figure("written, MiB/s") * (1 << 20) / MB,
            "fsyncs_s": figure("fsyncs/s"),
            "file_p95_ms": figure("95th percentile"),
        },
        series=series,
    )
