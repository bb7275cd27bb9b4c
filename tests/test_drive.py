"""The drive's own tests: its model on a virtual clock, and the drive under a file system."""

import subprocess
from pathlib import Path

import pytest

from wallab import paths


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The drive compiled with every warning an error, as its project file says."""
    folder = tmp_path_factory.mktemp("drive")
    subprocess.run(["meson", "setup", folder, paths.DRIVE], check=True, capture_output=True)
    done = subprocess.run(["meson", "compile", "-C", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return folder


def meson_test(build: Path, *names: str) -> None:
    """Run some of the drive's tests."""
    result = subprocess.run(
        ["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *names],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", ["parts", "timing", "cache", "random", "profiles"])
def test_model(build: Path, name: str) -> None:
    meson_test(build, name)


@pytest.mark.stack
def test_under_a_file_system(build: Path) -> None:
    meson_test(build, "stack")


def test_parameters_are_strict(build: Path, tmp_path: Path) -> None:
    program = build / "wal-drive"
    for setting in ("rpm=0", "rpm=fast", "nosuch=1"):
        result = subprocess.run(
            [program, "--mount", tmp_path, "--control", tmp_path / "c", "--size", "1048576",
             "--set", setting],
            capture_output=True, text=True,
        )  # fmt: skip
        assert result.returncode == 2
        assert setting.split("=")[0] in result.stderr
