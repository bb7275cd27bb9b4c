"""The benchmark that shows how late the drives of runs were, side by side."""

import shutil
import subprocess
from pathlib import Path

import msgspec

from benchmarks import lateness
from wallab import paths
from wallab.record import manifest
from wallab.record.samples import SAMPLES, SampleFile

REAL = paths.LAB / "results" / "example-quick"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the benchmark as it is typed."""
    return subprocess.run(
        [paths.LAB / ".venv/bin/python", "benchmarks/lateness.py", *arguments],
        cwd=paths.LAB, capture_output=True, text=True,
    )  # fmt: skip


def test_runs_stand_side_by_side_with_the_worst_sample_of_each_cell(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(REAL, other)
    lines = (other / SAMPLES).read_bytes().splitlines(keepends=True)
    (other / SAMPLES).write_bytes(lines[0])
    done = run(REAL, other)
    assert done.returncode == 0, done.stderr
    samples = SampleFile(REAL / SAMPLES).read()
    (first,) = SampleFile(other / SAMPLES).read()
    name = ", ".join((*first.cell.values(), "wal"))
    (row,) = (line for line in done.stdout.splitlines() if line.startswith(f"{name}  "))
    figures = [float(word) for word in row.removeprefix(name).split()]
    worst = max(
        s.drive["wal"].lateness["p99_ns"] for s in samples if s.cell == first.cell and s.drive
    )
    quantiles = first.drive["wal"].lateness
    assert figures[1] == round(worst / 1e3, 1)
    assert figures[3:] == [round(quantiles[key] / 1e3, 1) for key in ("p50_ns", "p99_ns", "max_ns")]
    rows = {(*s.cell.values(), drive) for s in samples for drive, d in s.drive.items()
            if d.lateness.get("count")}  # fmt: skip
    assert len(done.stdout.splitlines()) == len(rows) + 2


def test_a_limit_decides_the_exit_code() -> None:
    samples = SampleFile(REAL / SAMPLES).read()
    highest = max(d.lateness.get("p99_ns", 0) for s in samples for d in s.drive.values()) / 1e3
    assert lateness.late(samples, highest) == 0
    assert lateness.late(samples, highest - 0.1) >= 1
    assert run(REAL, "--limit", str(highest)).returncode == 0
    done = run(REAL, "--limit", str(highest - 0.1))
    assert done.returncode == 1
    assert "at the 99th percentile" in done.stdout


def test_a_machine_is_named_above_its_columns() -> None:
    plan = manifest.load(REAL)
    experiment = msgspec.structs.replace(plan.experiment, machine="virtual")
    virtual = msgspec.structs.replace(plan, experiment=experiment)
    heads = lateness.text([(virtual, ()), (plan, ())]).splitlines()[0].split()
    assert heads == ["virtual", "real"]


def test_what_is_no_run_is_bad_usage(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2
    assert "run" in done.stderr
