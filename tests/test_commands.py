"""What a user sees who types something wrong, or on a machine that lacks something."""

import os
import subprocess
from pathlib import Path

import pytest

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.machine import rights
from wallab.record import manifest
from wallab.servers.source import Source


def lab(command: str, *arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    """Run one of the lab's commands; return its exit code, output and messages."""
    result = subprocess.run(
        [paths.LAB / "scripts" / command, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "build-variant",
        "run-matrix",
        "power-cut",
        "reproduce",
        "tabulate",
        "drive",
        "screenshot",
        "worker",
        "scheduler",
    ],
)
def test_help_has_examples(command: str) -> None:
    code, output, _ = lab(command, "--help")
    assert code == 0
    assert "Examples:" in output
    assert f"scripts/{command}" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bath"], "no variant “bath”; there are stock"),
        ([], "name a variant"),
        (["both", "--source", "/etc"], "not a PostgreSQL source tree"),
        (["both", "--source", "/nonexistent"], "no such directory or tarball"),
        (["both", "--source", "18", "--build-system", "bazel"], "bazel"),
        (["both", "--nosuch"], "No such option"),
    ],
)
def test_build_variant_refuses(arguments: list[str], message: str) -> None:
    code, output, errors = lab("build-variant", *arguments)
    assert (code, output) == (2, "")
    assert message in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "no experiment “nosuch”; there are thread"),
        (["thread", "--preset", "nosuch"], "no preset “nosuch”; it has full, quick, smoke"),
        (["--matrix", "/nonexistent.toml"], "no such file"),
        (["--resume", "nosuch"], "no run “nosuch”"),
        (["--seed", "-1"], "-1"),
        (["--rounds", "0"], "0"),
        (["--precision", "0"], "0"),
        (["--max-time", "soon"], "soon: expected a duration, such as 90s, 45m or 2h"),
        (["--resume", "example-quick", "--rounds", "9"], "are those of the run to resume"),
        (["--resume", "example-quick", "--preset", "full"], "--preset: the run to resume has its"),
        (["--resume", "example-quick", "--seed", "7"], "--seed: the run to resume has its own"),
        (["archive", "--resume", "example-quick"], "“archive”: the run to resume has its own"),
    ],
)
def test_run_matrix_refuses(arguments: list[str], message: str) -> None:
    code, output, errors = lab("run-matrix", *arguments)
    assert (code, output) == (2, "")
    assert message in errors
    assert "Traceback" not in errors


def test_unknown_key_in_the_matrix(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(paths.MATRIX.read_text().replace("commit_delay", "x-y", 1))
    code, _, errors = lab("run-matrix", "--dry-run", "--matrix", file)
    assert code == 2
    assert f"{file}: experiment.thread.settings: “x-y”" in errors


def test_dry_run_lists_the_cells() -> None:
    code, output, errors = lab("run-matrix", "--dry-run", "--preset", "smoke")
    assert code == 0
    assert "both\toff\topen_direct" in output.splitlines()
    assert f"{len(output.splitlines())} cells" in errors


def test_dry_run_tells_what_options_change() -> None:
    options = ["--rounds", "12", "--precision", "4.5", "--control"]
    code, _, errors = lab("run-matrix", "--dry-run", "--preset", "smoke", *options)
    assert code == 0
    assert "× 12 rounds, fewer where ± 4.5% is reached, one cell twice a round" in errors


def test_output_goes_to_an_empty_directory_only(tmp_path: Path) -> None:
    dry = ["--dry-run", "--preset", "smoke", "--output", str(tmp_path)]
    assert lab("run-matrix", *dry)[0] == 0
    (tmp_path / "mine").touch()
    code, _, errors = lab("run-matrix", *dry)
    assert code == 2
    assert f"{tmp_path} is there already; name another --output" in errors


def test_list_shows_variants_and_series() -> None:
    code, output, _ = lab("build-variant", "--list")
    assert code == 0
    for word in ("baseline", "gather-ring", "18: tested with 18"):
        assert word in output


def test_tabulate_of_what_is_no_run(tmp_path: Path) -> None:
    code, _, errors = lab("tabulate", tmp_path)
    assert code == 2
    assert "no run of the lab" in errors


def test_latest_without_any_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    with pytest.raises(LabError, match="there is no run"):
        manifest.find("latest")


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="as root"):
        rights.check()


def test_no_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(MachineError, match="modprobe fuse"):
        rights.check()


@pytest.mark.stack
def test_full_disk_while_building(source18: Source, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", small], check=True)
    try:
        before = sorted(paths.BUILD.rglob("build.json"))
        # A copy elsewhere has another name, so that no earlier build serves.
        arguments = ["stock", "--source", source18.location, "--build-system", "autoconf"]
        environment = {"WALLAB_CACHE": str(small / "cache"), "CFLAGS": f"-O0 -DX={os.getpid()}"}
        drive = paths.cache() / "drive"
        if drive.exists():
            (small / "cache").mkdir()
            (small / "cache" / "drive").symlink_to(drive)
        code, output, errors = lab("build-variant", *map(str, arguments), **environment)
        assert (code, output) == (3, "")
        assert "No space left on device" in errors
        assert "Traceback" not in errors
        assert sorted(paths.BUILD.rglob("build.json")) == before
        assert not list((small / "cache" / "trees").glob("*/*/src*"))
    finally:
        subprocess.run(["umount", small], check=True)
