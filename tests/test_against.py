"""Two runs are compared cell by cell, and a gate fails when a cell has become slower."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from wallab import paths
from wallab.command import tabulate
from wallab.files import jsonfile
from wallab.record import manifest
from wallab.record.manifest import Manifest
from wallab.record.measured import Measured
from wallab.record.samples import Sample, SampleFile
from wallab.results import against
from wallab.results.export import versus

Made = Callable[..., Path]
CELLS = [("both", "fdatasync"), ("both", "open_direct"), ("direct-io", "fsync")]


@pytest.fixture(scope="module")
def plan() -> Manifest:
    """The manifest of the committed example run."""
    return manifest.load(paths.LAB / "results" / "example-quick")


def samples(rates: list[float], rounds: int, seed: int, sample: Sample) -> list[Sample]:
    """Samples of CELLS that vary by 1% about their rates."""
    source = random.Random(seed)
    return [
        msgspec.structs.replace(
            sample,
            cell={"variant": variant, "write_cache": "off", "sync": sync},
            round=number,
            figures=Measured(rate * source.gauss(1, 0.01), 1000, 0, 1.0, 1.0),
        )
        for number in range(1, rounds + 1)
        for (variant, sync), rate in zip(CELLS, rates, strict=True)
    ]


@pytest.fixture
def made(tmp_path: Path, plan: Manifest) -> Made:
    """Make a run directory with samples at these rates."""
    template = SampleFile(paths.LAB / "results" / "example-quick" / "samples.jsonl").read()[0]

    def make(name: str, rates: list[float], rounds: int = 8) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        jsonfile.save(folder / "manifest.json", plan)
        file = SampleFile(folder / "samples.jsonl")
        for sample in samples(rates, rounds, len(name), template):
            file.append(sample)
        return folder

    return make


def tabulated(*arguments: str | Path) -> tuple[int, str, str]:
    """Run the command in this process; exit code, output, messages."""
    result = CliRunner().invoke(
        tabulate.command, [str(argument) for argument in arguments], standalone_mode=False
    )
    code = 2 if result.exception else result.return_value
    return code, result.stdout, result.stderr + str(result.exception or "")


def test_gate(made: Made) -> None:
    old, new = made("old", [100, 200, 50]), made("newer", [100, 180, 50])
    code, output, errors = tabulated(new, "--against", old, "--fail-if-slower", "5")
    assert code == 1
    assert "slower: both, off, open_direct: 0.9" in errors
    assert errors.count("slower:") == 1
    (line,) = [line for line in output.splitlines() if line.endswith("slower")]
    assert "open_direct" in line
    assert tabulated(new, "--against", old, "--fail-if-slower", "20")[0] == 0
    assert tabulated(old, "--against", new, "--fail-if-slower", "5")[0] == 0
    assert "faster" in tabulated(old, "--against", new)[1]


def test_no_verdict_without_rounds(made: Made) -> None:
    old, new = made("old", [100, 200, 50], 4), made("newer", [50, 100, 25], 8)
    gate = (new, "--against", old, "--fail-if-slower", "5")
    code, output, errors = tabulated(*gate)
    assert code == 1
    assert output.count("too few rounds") == 3
    assert "too few rounds for a verdict: both, off, open_direct" in errors
    assert tabulated(*gate, "--allow-few-rounds")[0] == 0


def fail(folder: Path, sync: str) -> None:
    """Let every sample of the method's cell be one that failed."""
    file = SampleFile(folder / "samples.jsonl")
    before = file.read()
    file.path.unlink()
    for sample in before:
        failed = sample.cell["sync"] == sync
        changes = {"state": "failed", "figures": None, "error": "no"} if failed else {}
        file.append(msgspec.structs.replace(sample, **changes))


def test_gate_does_not_pass_by_failing(made: Made) -> None:
    old, new = made("old", [100, 200, 50]), made("newer", [100, 200, 50])
    fail(new, "open_direct")
    gate = (new, "--against", old, "--fail-if-slower", "5")
    code, output, errors = tabulated(*gate, "--allow-few-rounds")
    assert code == 1
    assert "failed in every round: both, off, open_direct" in errors
    assert "Failed in every round of the first run: both, off, open_direct." in output
    for sync in ("fdatasync", "fsync"):
        fail(new, sync)
    code, _, errors = tabulated(*gate)
    assert code == 1
    assert errors.count("failed in every round:") == 3


def test_gate_does_not_pass_what_was_not_run(made: Made) -> None:
    old, new = made("old", [100, 200, 50]), made("newer", [100, 200, 50])
    file = SampleFile(new / "samples.jsonl")
    kept = [sample for sample in file.read() if sample.cell["sync"] != "fsync"]
    file.path.unlink()
    for sample in kept:
        file.append(sample)
    gate = (new, "--against", old, "--fail-if-slower", "5")
    code, _, errors = tabulated(*gate)
    assert code == 1
    assert "too few rounds for a verdict: direct-io, off, fsync" in errors
    assert tabulated(*gate, "--allow-few-rounds")[0] == 0


def test_formats_say_the_same_twice(made: Made) -> None:
    old, new = made("old", [100, 200, 50]), made("newer", [100, 180, 50])
    for kind in versus.FORMATS:
        result = tabulated(new, "--against", old, "--format", kind)
        assert result == tabulated(new, "--against", old, "--format", kind)
        assert "slower" in result[1]
    assert len(json.loads(result[1])["pairs"]) == 3


def test_what_only_one_run_has_is_named(plan: Manifest, made: Made) -> None:
    ours = SampleFile(made("old", [100, 200, 50]) / "samples.jsonl").read()
    fewer = [sample for sample in ours if sample.cell["sync"] != "fsync"]
    comparison = against.compare((plan, ours), (plan, fewer))
    assert [cell["sync"] for cell in comparison.alone] == ["fsync"]
    assert len(comparison.pairs) == 2
    assert comparison.differing == ()


def test_another_lab_is_named(plan: Manifest, made: Made) -> None:
    ours = SampleFile(made("old", [100, 200, 50]) / "samples.jsonl").read()
    lab, program = plan.lab | {"files": "01"}, "02"
    old = msgspec.structs.replace(plan, lab=lab, drive_program=program)
    new = msgspec.structs.replace(plan, lab=lab | {"commit": "0", "files": "1"}, drive_program="2")
    compared = against.compare((new, ours), (old, ours))
    assert compared.differing == ("the drive's program", "the lab's commit", "the lab's files")
    words = "The runs also differ in: the drive's program, the lab's commit, the lab's files."
    assert words in versus.text(compared)
    # A run of before did not note them.
    assert against.compare((new, ours), (plan, ours)).differing == ("the lab's commit",)


def test_controls_are_no_cells(plan: Manifest, made: Made) -> None:
    ours = SampleFile(made("old", [100, 200, 50]) / "samples.jsonl").read()
    second = [msgspec.structs.replace(sample, control=True) for sample in ours]
    comparison = against.compare((plan, [*ours, *second]), (plan, ours))
    assert {pair.comparison.rounds for pair in comparison.pairs} == {8}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "colour"], "no axis “colour”; the run has variant, write_cache, sync"),
        (["--rows", "sync", "--columns", "sync"], "each axis has one place"),
        (["--rows", "sync,sync"], "each axis has one place"),
        (["--value", "beauty"], "beauty"),
        (["--against", "nosuch"], "no run “nosuch”"),
        (["--allow-few-rounds"], "is for --fail-if-slower"),
    ],
)
def test_wrong_arguments(made: Made, arguments: list[str], message: str) -> None:
    code, output, errors = tabulated(made("old", [100, 200, 50]), *arguments)
    assert (code, output) == (2, "")
    assert message in errors


def test_rows_columns_and_value(made: Made) -> None:
    folder = made("old", [100, 200, 50])
    _, output, _ = tabulated(folder, "--rows", "sync,variant", "--columns", "write_cache",
                             "--format", "markdown")  # fmt: skip
    head = next(line for line in output.splitlines() if line.startswith("| "))
    assert [part.strip() for part in head.strip("|").split("|")][:3] == ["sync", "variant", "off"]
    assert "in brackets" not in output  # what was published is for its own columns
    _, output, _ = tabulated(folder, "--value", "full_page_images")
    assert "full-page images/tx" in output


def test_control_is_shown(plan: Manifest, made: Made) -> None:
    folder = made("old", [100, 200, 50])
    file = SampleFile(folder / "samples.jsonl")
    cell = {"variant": "both", "write_cache": "off", "sync": "open_direct"}
    for sample in file.read():
        if sample.cell == cell and sample.figures:
            figures = msgspec.structs.replace(sample.figures, tps=sample.figures.tps * 1.001)
            file.append(msgspec.structs.replace(sample, control=True, figures=figures))
    preset = msgspec.structs.replace(plan.preset, control=cell)
    jsonfile.save(folder / "manifest.json", msgspec.structs.replace(plan, preset=preset))
    output = tabulated(folder)[1]
    assert "A/A control: both, off, open_direct under two names, ratio 1.001 (1.001 to" in output
