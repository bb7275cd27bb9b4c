"""bonnie++ beside the server: sequential writing and reading, seeks, and the creation of files."""

from pathlib import Path
from typing import ClassVar

from wallab.bench.pgbench import RunFailed
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.bench.workloads import files
from wallab.bench.workloads.base import Outcome
from wallab.bench.workloads.files import FileWorkload
from wallab.machine import memorygroup
from wallab.record.gauges import MB
from wallab.record.measured import Measured

KB = 1024
"""bonnie++ counts so many bytes a K."""

CREATED = 1
"""Files that it creates, in units of 1024."""

SEEKS = "8k:2048:5"
"""Size of a block, seeks, and processes that seek; its own 8192 seeks take a disk a minute."""

# Place in a line of its CSV (format 1.98) -> what stands there.
_PLACES = {
    "seeks": 7,
    "file_write_kb": 11,
    "file_rewrite_kb": 13,
    "file_read_kb": 17,
    "seeks_s": 19,
    "creates_s": 26,
}


class Bonnie(FileWorkload):
    """One run of bonnie++ in memory of half its files' size, as it asks for."""

    packages: ClassVar[dict[str, str]] = {"bonnie++": "bonnie++"}

    def lacking(self) -> str:
        return memorygroup.lacking()

    def measure(self, stage: Stage, runner: Runner) -> Outcome:
        memory = stage.preset.files_mb // 2
        folder = files.folder(stage)
        command: list[str | Path] = [
            files.program("bonnie++"),
            "-q",  # CSV on standard output, the rest on standard error
            "-f",  # nothing character by character, which measures the processor
            "-m",
            "lab",
            "-d",
            folder,
            "-s",
            f"{stage.preset.files_mb}M:{SEEKS}",
            "-r",
            f"{memory}M",
            "-n",
            str(CREATED),
        ]
        output, seconds = runner.program(command, folder, memory)
        return outcome(output, seconds)


def outcome(output: str, seconds: float) -> Outcome:
    """Read the CSV that bonnie++ printed; RunFailed if it is none, or has no seeks."""
    fields = output.strip().splitlines()[-1].split(",") if output.strip() else []
    if len(fields) <= max(_PLACES.values()) or fields[0] not in ("1.97", "1.98"):
        raise RunFailed(f"bonnie++ printed no CSV of format 1.97 or 1.98: {output.strip()[-300:]}")

    def figure(name: str) -> float | None:
        try:
            return float(fields[_PLACES[name]])
        except ValueError:
            return None  # “+++++”: it was over too soon to be told

    rate, seeks = figure("seeks_s"), figure("seeks")
    if rate is None or seeks is None:
        raise RunFailed("bonnie++'s seeks were over too soon to be told: raise files_mb")
    values = {
        f"{name.removesuffix('_kb')}_mb_s": kb * KB / MB
        for name in ("file_write_kb", "file_rewrite_kb", "file_read_kb")
        if (kb := figure(name)) is not None
    }
    if (creates := figure("creates_s")) is not None:
        values["creates_s"] = creates
    # What is counted a second are the seeks, one phase among others.
    figures = Measured(rate, round(seeks), 0, 1000 / rate, 0.0, lasted_s=seconds)
    return Outcome(figures, values=values)
