"""What scripts/test checks besides pytest."""

import shutil
import subprocess
from pathlib import Path

import pytest

from wallab import paths
from wallab.command import test as checks


def test_c_code_that_is_laid_out_otherwise_is_found(tmp_path: Path) -> None:
    command = dict(checks.checks())["C layout"]
    assert {Path(file).parent for file in checks.c_files()} == {
        paths.DIRECT_CP,
        paths.DRIVE / "fuzz",
        paths.DRIVE / "src",
        paths.DRIVE / "tests",
        paths.LAB / "tests" / "faults",
        paths.LAB / "tests" / "turns",
        paths.TURNS,
    }
    assert subprocess.run(command).returncode == 0
    shutil.copy(paths.LAB / ".clang-format", tmp_path)
    (tmp_path / "wild.c").write_text("int main( void ) { return 0 ; }\n")
    result = subprocess.run([*command, tmp_path / "wild.c"], capture_output=True, text=True)
    assert result.returncode != 0
    assert "wild.c" in result.stderr


def test_a_check_stops_at_the_command_that_fails_and_shows_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = tmp_path / "after"
    fails = ["sh", "-c", "echo the reason; exit 1"]
    assert not checks.passed("two", fails, ["touch", str(after)])
    assert not after.exists()
    messages = capsys.readouterr().err
    assert "the reason" in messages
    assert "two: FAILED" in messages
    assert checks.passed("two", ["true"], ["touch", str(after)])
    assert after.exists()
