"""The benchmark that sets a run in virtual time beside one in real time."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from benchmarks import beside_real
from wallab import paths
from wallab.files import jsonfile
from wallab.record import manifest
from wallab.record.manifest import Manifest
from wallab.record.samples import SAMPLES, CpuSeconds, Sample, SampleFile
from wallab.record.virtualmachine import VirtualMachine

REAL = paths.LAB / "results" / "example-thread"
VIRTUAL = VirtualMachine(
    mips=1000, memory_mb=(1024,), emulator="QEMU", emulator_sha256="01", turns="t",
    firmware_sha256="02", options=(), kernel="6.1", kernel_sha256="02", first_sha256="03",
    root_sha256="04", servers={}, templates={},
)  # fmt: skip


def changed(sample: Sample, factor: float, processor: float) -> Sample:
    """The sample with so many times its TPS, and so much of a processor taken by the server."""
    if sample.figures is None:
        return sample
    figures = msgspec.structs.replace(sample.figures, tps=sample.figures.tps * factor)
    cpu = CpuSeconds(processor * sample.phases["measure"], 0.1)
    return msgspec.structs.replace(sample, figures=figures, cpu_seconds=cpu)


def run_of(folder: Path, plan: Manifest, samples: list[Sample]) -> Path:
    """A run's folder with them."""
    folder.mkdir()
    jsonfile.save(folder / "manifest.json", plan)
    file = SampleFile(folder / SAMPLES)
    for sample in samples:
        file.append(sample)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """One in virtual time with 1.05 times the TPS, but 1.5 where the server takes a processor."""
    plan = manifest.load(REAL)
    known = SampleFile(REAL / SAMPLES).read()
    busy = [sample.cell["sync"] == "fsync=false" for sample in known]
    real = [changed(sample, 1, 0.2) for sample in known]
    virtual = [
        changed(sample, 1.5 if is_busy else 1.05, 0.5 if is_busy else 0.2)
        for sample, is_busy in zip(known, busy, strict=True)
    ]
    return (
        run_of(tmp_path / "v", msgspec.structs.replace(plan, virtual=VIRTUAL), virtual),
        run_of(tmp_path / "r", plan, real),
    )


def called(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the benchmark as it is typed."""
    return subprocess.run(
        [paths.LAB / ".venv/bin/python", "benchmarks/beside_real.py", *arguments],
        cwd=paths.LAB, capture_output=True, text=True,
    )  # fmt: skip


def test_cells_that_wait_for_their_drive_are_judged(runs: tuple[Path, Path]) -> None:
    done = called(*runs, "--within", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert called(*runs, "--within", "4").returncode == 1
    rows = done.stdout.splitlines()[2:-1]
    judged = [row for row in rows if not row.endswith("not judged")]
    assert judged == rows[: len(judged)]
    assert all(" off, " in row and " 1.050 " in row for row in judged)
    assert not any("fsync=false" in row for row in judged)
    assert any("fsync=false" in row and " 1.500 " in row for row in rows)
    off = [cell for cell in manifest.load(REAL).cells if cell["write_cache"] == "off"]
    measured = {tuple(s.cell.items()) for s in SampleFile(REAL / SAMPLES).read() if s.figures}
    assert len(judged) == sum(
        tuple(cell.items()) in measured and cell["sync"] != "fsync=false" for cell in off
    )


def test_a_second_measure_of_a_cell_is_no_round_of_it(runs: tuple[Path, Path]) -> None:
    samples = SampleFile(runs[0] / SAMPLES).read()
    controls = [msgspec.structs.replace(changed(s, 9, 0.2), control=True) for s in samples]
    assert beside_real.figures([*samples, *controls]) == beside_real.figures(samples)


@pytest.mark.parametrize("order", [(0, 0), (1, 1), (1, 0)])
def test_each_run_is_of_its_own_kind(runs: tuple[Path, Path], order: tuple[int, int]) -> None:
    done = called(*(runs[place] for place in order))
    assert done.returncode == 2
    assert "expected a run in" in done.stderr


def test_nothing_in_common_is_said(runs: tuple[Path, Path], tmp_path: Path) -> None:
    empty = run_of(tmp_path / "e", manifest.load(REAL), [])
    done = called(runs[0], empty)
    assert done.returncode == 2
    assert "no cell in common" in done.stderr
