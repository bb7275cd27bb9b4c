"""The drive's own tests: its model on a virtual clock, and the drive under a file system."""

import subprocess
from pathlib import Path

import pytest

from wallab import paths
from wallab.command import mesonlog


def meson_test(build: Path, *names: str) -> None:
    """Run some of the drive's tests; skipped here if the drive's own tests skip one."""
    result = subprocess.run(
        ["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *names],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    if skips := mesonlog.skipped(mesonlog.read(build)):
        pytest.skip("; ".join(test.reason for test in skips))


@pytest.mark.parametrize(
    "name", ["parts", "timing", "anticipatory", "cache", "random", "line", "profiles"]
)
def test_model(drive_build: Path, name: str) -> None:
    meson_test(drive_build, name)


@pytest.mark.stack
def test_under_a_file_system(drive_build: Path) -> None:
    meson_test(drive_build, "stack")


def test_a_test_that_skips_itself_is_skipped(tmp_path: Path) -> None:
    """To meson that is a success."""
    (tmp_path / "meson.build").write_text(
        "project('skipping')\ntest('cannot', find_program('sh'), "
        "args: ['-c', 'echo skipped: not root; exit 77'])\n"
    )
    build = tmp_path / "build"
    subprocess.run(["meson", "setup", build, tmp_path], check=True, capture_output=True)
    with pytest.raises(pytest.skip.Exception, match="not root"):
        meson_test(build)


def test_parameters_are_strict(drive_build: Path, tmp_path: Path) -> None:
    program = drive_build / "wal-drive"
    for setting in ("rpm=0", "rpm=fast", "nosuch=1"):
        result = subprocess.run(
            [program, "--mount", tmp_path, "--control", tmp_path / "c", "--size", "1048576",
             "--set", setting],
            capture_output=True, text=True,
        )  # fmt: skip
        assert result.returncode == 2
        assert setting.split("=")[0] in result.stderr


def test_a_state_of_the_cache_that_is_none_is_refused(drive_build: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [drive_build / "wal-drive", "--mount", tmp_path, "--control", tmp_path / "c", "--size",
         "1048576", "--write-cache", "maybe"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 2
    assert '--write-cache: "maybe" is not off, on or battery' in result.stderr


def test_profiles_give_their_sources() -> None:
    """Every figure stands in a paragraph that begins with where it is from."""
    for file in (paths.DRIVE / "profiles").glob("*.toml"):
        for paragraph in file.read_text().strip().split("\n\n"):
            assert paragraph.startswith(("#", "name = ")), f"{file.name}: {paragraph}"
