"""The drive's C and inputs of any kind, found by libFuzzer; and faults that it must find."""

import shutil
from pathlib import Path

import pytest

from benchmarks import fuzz_drive
from wallab import paths

SECONDS = 60 // len(fuzz_drive.TARGETS)
"""Of each target, a minute of all; benchmarks/fuzz_drive.py takes longer."""

FAULTS = {
    "control": (
        "controlcommands.c",
        "    char *arguments = line;\n",
        "    char copy[200];\n    char *arguments = strcpy(copy, line);\n",
    ),
    "params": (
        "params.c",
        " || value < k->minimum || value > k->maximum)\n            break;",
        ")\n            break;",
    ),
    "trace": ("trace.c", "if (t->used == RECORDS) {", "if (t->used > RECORDS) {"),
}
"""Target -> file, what is right in it, and what is wrong: a limit that nobody keeps."""


@pytest.fixture(scope="module", autouse=True)
def _needs_fuzzer() -> None:
    if reason := fuzz_drive.lacking():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The targets as they are."""
    return fuzz_drive.compile_targets(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The targets of a drive with all the faults."""
    sources = tmp_path_factory.mktemp("faulty") / "drive"
    shutil.copytree(paths.DRIVE, sources)
    for name, right, wrong in FAULTS.values():
        file = sources / "src" / name
        text = file.read_text()
        assert text.count(right) == 1, f"{name} has changed: plant this fault anew"
        file.write_text(text.replace(right, wrong))
    return fuzz_drive.compile_targets(tmp_path_factory.mktemp("faulty-build"), sources)


@pytest.mark.parametrize("target", fuzz_drive.TARGETS)
def test_nothing_is_found(programs: Path, tmp_path: Path, target: str) -> None:
    outcome = fuzz_drive.fuzz(programs, target, SECONDS, tmp_path)
    assert outcome.crash == ""
    assert outcome.executions > 100


@pytest.mark.parametrize("target", fuzz_drive.TARGETS)
def test_fault_is_found(faulty: Path, tmp_path: Path, target: str) -> None:
    outcome = fuzz_drive.fuzz(faulty, target, 60, tmp_path)
    assert outcome.crash
    assert list(tmp_path.glob(f"{target}-*")), "the input was not kept"
