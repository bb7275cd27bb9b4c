"""A run on a mock test bed: what is kept, resumed and refused, whatever ends it."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wallab import paths
from wallab.bench.run import Run
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile, resultfolder
from wallab.machine import ledger
from wallab.record import manifest, matrix
from wallab.record.experiment import Cell
from wallab.record.manifest import BedReport, Manifest
from wallab.record.measured import Measured
from wallab.record.samples import SAMPLES, Sample, SampleFile
from wallab.results import tabulation

EXAMPLE = paths.LAB / "results" / "example-quick"


class MockBed:
    """Measures at once: 100 TPS, more in odd rounds."""

    def __init__(self, end_after: int | None = None, error: BaseException | None = None) -> None:
        self.methods: dict[str, tuple[str, ...]] = {}
        self.values = ("tps",)
        self.taken = 0
        self.closed = 0
        self._end_after = end_after
        self._error = error

    def open(self) -> BedReport:
        return BedReport({"10": {"seconds": 1.0}}, {})

    def lacks(self, cell: Cell) -> str:
        return "not here" if cell["variant"] == "gather-write" else ""

    def sample(
        self, cell: Cell, round_number: int, position: int, *, control: bool = False
    ) -> Sample:
        if self._error and self.taken == self._end_after:
            raise self._error
        self.taken += 1
        return Sample(
            cell=cell, round=round_number, position=position, started="", state="measured",
            figures=Measured(100.0 + round_number % 2, 300, 0, 1.0, 1.0),
            phases={"restore": 0.25, "measure": 3.5},
        )  # fmt: skip

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for nothing that another run may have left on this machine."""
    monkeypatch.setattr(ledger, "clear_dead", list)


@pytest.fixture
def plan() -> Manifest:
    """The plan of a run of 12 cells, 8 of which can be measured."""
    experiment, preset = matrix.choose(matrix.read(), "thread", "smoke")
    preset = msgspec.structs.replace(preset, rounds=12, precision=3.0, control=None)
    cells = tuple(matrix.cells(experiment, preset))
    example = manifest.load(EXAMPLE)
    return msgspec.structs.replace(
        example, preset_name="smoke", experiment=experiment, preset=preset, cells=cells, seed=5,
        drives={}, sessions=[], cost=None, templates={}, preparing_s=0.0, not_applicable=(),
        machine=msgspec.structs.replace(example.machine, tuning={"vm.swappiness": "60"}),
        lab=example.lab | {"files": "01"}, drive_program="02",
    )  # fmt: skip


def again(plan: Manifest) -> Manifest:
    """The plan as a later command makes it."""
    return jsonfile.loads(jsonfile.dumps(plan), Manifest)


def test_precise_cells_stop_and_the_manifest_says_what_that_saved(
    plan: Manifest, tmp_path: Path
) -> None:
    bed = MockBed()
    samples = Run(tmp_path / "out", plan, bed).measure(resumed=False)
    can = sum(cell["variant"] != "gather-write" for cell in plan.cells)
    assert len(samples) == bed.taken == can * 8
    kept = manifest.load(tmp_path / "out")
    assert kept.cost is not None
    assert len(kept.cost.stopped) == can
    assert kept.cost.saved == pytest.approx(can * 4 * 3.75)
    measured = sum(300 / sample.figures.tps for sample in samples if sample.figures)
    assert kept.cost.measured == pytest.approx(measured, abs=0.1)
    assert kept.cost.phases["restore"] == pytest.approx(can * 8 * 0.25)
    rest = sum(kept.cost.phases.values())
    assert kept.cost.overhead == pytest.approx(rest / measured, abs=0.01)
    assert [session.ended for session in kept.sessions] == ["complete"]
    assert bed.closed


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MachineError("drive gone")])
@pytest.mark.parametrize("after", [0, 1, 13, 40])
def test_resumed_run_measures_what_an_uninterrupted_one_does(
    plan: Manifest, tmp_path: Path, after: int, error: BaseException
) -> None:
    whole = Run(tmp_path / "whole", again(plan), MockBed()).measure(resumed=False)
    broken = MockBed(after, error)
    with pytest.raises(type(error)):
        Run(tmp_path / "out", again(plan), broken).measure(resumed=False)
    assert broken.closed
    assert manifest.load(tmp_path / "out").sessions[-1].ended == "interrupted"
    with (tmp_path / "out" / SAMPLES).open("ab") as stream:
        stream.write(b'{"cell":{"variant":"bo')  # as a kill in the midst of it leaves it
    resumed = Run(tmp_path / "out", again(plan), MockBed()).measure(resumed=True)
    assert resumed == whole
    assert len(manifest.load(tmp_path / "out").sessions) == 2
    assert b'"bo' in (tmp_path / "out" / "samples.damaged").read_bytes()


def test_max_time(plan: Manifest, tmp_path: Path) -> None:
    bed = MockBed()
    Run(tmp_path / "out", again(plan), bed).measure(resumed=False, max_seconds=0)
    assert bed.taken == 0
    assert manifest.load(tmp_path / "out").sessions[-1].ended == "out of time"
    assert Run(tmp_path / "out", again(plan), MockBed()).measure(resumed=True)


def changed(**fields: Any) -> Callable[[Manifest], Manifest]:
    """Return what replaces fields of a plan."""
    return lambda plan: msgspec.structs.replace(plan, **fields)


def other_build(**fields: Any) -> Callable[[Manifest], Manifest]:
    """Return what replaces fields of the variant both's build."""

    def change(plan: Manifest) -> Manifest:
        both = msgspec.structs.replace(plan.builds["both"], **fields)
        return msgspec.structs.replace(plan, builds=plan.builds | {"both": both})

    return change


def other_lab(**parts: str) -> Callable[[Manifest], Manifest]:
    """Return what replaces parts of the lab's own state."""
    return lambda plan: msgspec.structs.replace(plan, lab=plan.lab | parts)


def other_machine(**fields: Any) -> Callable[[Manifest], Manifest]:
    """Return what replaces fields of the machine."""
    return lambda plan: msgspec.structs.replace(
        plan, machine=msgspec.structs.replace(plan.machine, **fields)
    )


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (changed(name="other"), "in experiment"),
        (changed(experiment=None), "in experiment"),
        (changed(preset_name="full"), "in preset"),
        (changed(preset=None), "in preset"),
        (changed(seed=6), "in seed"),
        (changed(drive_program="0000"), "in the drive's program"),
        (changed(builds={}), "in variants"),
        (other_lab(files="0000"), "in the lab's files"),
        (changed(cells=()), "in cells"),
        (changed(drives={"wal": {"rpm": "5400"}}), "in drives"),
        (other_machine(kernel="6.99"), "in kernel"),
        (other_machine(cpus=99), "in machine"),
        (other_machine(memory_kb=1), "in machine"),
        (other_machine(tuning={"vm.swappiness": "10"}), "in kernel setting vm.swappiness"),
        (other_build(source="0000"), "in source"),
        (other_build(patches=()), "in patch baseline, patch direct-io, patch gather-write"),
        (other_build(compiler="tcc"), "in compiler"),
        (other_build(key="0000"), "in options of the build"),
    ],
)
def test_what_differs_is_named_and_nothing_touched(
    plan: Manifest, tmp_path: Path, change: Callable[[Manifest], Manifest], difference: str
) -> None:
    Run(tmp_path / "out", again(plan), MockBed()).measure(resumed=False, max_seconds=0)
    before = (tmp_path / "out" / manifest.FILE).read_bytes()
    bed = MockBed()
    with pytest.raises(LabError, match=f"{difference}. Start a new run"):
        Run(tmp_path / "out", change(again(plan)), bed).measure(resumed=True)
    assert (bed.taken, (tmp_path / "out" / manifest.FILE).read_bytes()) == (0, before)


def test_run_of_another_lab_is_resumed_with_that(plan: Manifest, tmp_path: Path) -> None:
    Run(tmp_path / "out", again(plan), MockBed()).measure(resumed=False, max_seconds=0)
    later = other_lab(commit="0000")(again(plan))
    words = f"in the lab's commit. Start a new run .* git checkout {plan.lab['commit']}"
    with pytest.raises(LabError, match=words):
        Run(tmp_path / "out", later, MockBed()).measure(resumed=True)


def test_other_methods_are_seen_once_the_servers_are_there(plan: Manifest, tmp_path: Path) -> None:
    Run(tmp_path / "out", again(plan), MockBed()).measure(resumed=False, max_seconds=0)
    before = (tmp_path / "out" / manifest.FILE).read_bytes()
    bed = MockBed()
    bed.methods = {"both": ("fsync",)}
    with pytest.raises(LabError, match="values of wal_sync_method differ now"):
        Run(tmp_path / "out", again(plan), bed).measure(resumed=True)
    assert (bed.taken, bed.closed) == (0, 1)
    assert (tmp_path / "out" / manifest.FILE).read_bytes() == before


def test_another_memory_of_a_template_is_seen_once_it_is_there(
    plan: Manifest, tmp_path: Path
) -> None:
    class Bed(MockBed):
        memory = "one"

        def open(self) -> BedReport:
            return BedReport({}, {}, None, {"18-10": self.memory})

    Run(tmp_path / "out", again(plan), Bed()).measure(resumed=False, max_seconds=0)
    assert manifest.load(tmp_path / "out").template_memory == {"18-10": "one"}
    assert Run(tmp_path / "out", again(plan), Bed()).measure(resumed=True, max_seconds=0) == []
    bed = Bed()
    bed.memory = "another"
    with pytest.raises(LabError, match="the memory of its templates became another"):
        Run(tmp_path / "out", again(plan), bed).measure(resumed=True)
    assert (bed.taken, bed.closed) == (0, 1)


def test_memory_that_a_boot_found_a_little_less_of_is_the_same(
    plan: Manifest, tmp_path: Path
) -> None:
    Run(tmp_path / "out", again(plan), MockBed()).measure(resumed=False, max_seconds=0)
    less = other_machine(memory_kb=plan.machine.memory_kb - 512)
    assert Run(tmp_path / "out", less(again(plan)), MockBed()).measure(resumed=True)


def test_what_a_kill_left_unfinished_goes(plan: Manifest, tmp_path: Path) -> None:
    """A kill may come while the manifest is written."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / f".manifest.json.{gone.pid}.partial").write_text("{")
    assert resultfolder.new(folder, "thread") == folder
    assert list(folder.iterdir()) == []
    Run(folder, again(plan), MockBed()).measure(resumed=False, max_seconds=0)
    (folder / f".manifest.json.{gone.pid}.partial").write_text("{")
    Run(folder, again(plan), MockBed()).measure(resumed=True)
    assert sorted(file.name for file in folder.iterdir()) == ["manifest.json", "samples.jsonl"]


def test_full_disk(plan: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Run(tmp_path / "whole", again(plan), MockBed()).measure(resumed=False)
    real, count = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal count
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == SAMPLES:
            count += 1
            if count > 5:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(MachineError, match=r"No space left on device.*--resume"):
            Run(tmp_path / "out", again(plan), MockBed()).measure(resumed=False)
    assert len(SampleFile(tmp_path / "out" / SAMPLES).read()) == 5
    assert Run(tmp_path / "out", again(plan), MockBed()).measure(resumed=True) == whole


def test_moved_run_is_tabulated_to_the_same_bytes(plan: Manifest, tmp_path: Path) -> None:
    Run(tmp_path / "out", plan, MockBed()).measure(resumed=False)
    kinds = ("text", "markdown", "csv", "json")
    pages = [tabulation.render(tabulation.results_of(tmp_path / "out"), kind) for kind in kinds]
    shutil.move(tmp_path / "out", tmp_path / "elsewhere")
    moved = tabulation.results_of(tmp_path / "elsewhere")
    assert [tabulation.render(moved, kind) for kind in kinds] == pages
    assert str(tmp_path) not in "".join(pages)


def test_files_that_cannot_be_written(plan: Manifest, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    Run(folder, plan, MockBed()).measure(resumed=False, max_seconds=0)
    (folder / "table.md").mkdir()  # as good as a full disk, and for root, too
    with pytest.raises(MachineError, match=r"table.md: Is a directory; all samples are kept"):
        tabulation.write_files(folder)


def test_value_that_no_sample_has(plan: Manifest, tmp_path: Path) -> None:
    Run(tmp_path / "out", plan, MockBed()).measure(resumed=False)
    assert tabulation.results_of(tmp_path / "out", value="tps").table.values == ("tps",)
    with pytest.raises(LabError, match=r"--value tpm: no sample of .* has that figure"):
        tabulation.results_of(tmp_path / "out", value="tpm")
