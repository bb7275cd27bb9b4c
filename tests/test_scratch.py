"""Folders of the lab's own: they go with what is in them, and never through a mount."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from wallab.errors import MachineError
from wallab.machine import mounts, running, scratch
from wallab.machine.scratch import Folder


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where programs were looked for; nothing is mounted, and none runs."""
    looked: list[Path] = []

    def end_below(folder: Path) -> list[str]:
        looked.append(folder)
        return []

    monkeypatch.setattr(mounts, "below", lambda folder: [])
    monkeypatch.setattr(running, "end_below", end_below)
    return looked


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with something in it."""
    path = tmp_path / "x"
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "file").touch()
    return Folder(path, path.lstat().st_ino)


def test_it_goes(folder: Folder, quiet: list[Path]) -> None:
    assert folder.is_there()
    assert folder.undo() == f"removed {folder.path}"
    assert not folder.path.exists()
    assert quiet == [folder.path]
    assert not folder.is_there()
    assert folder.undo() == ""


def test_programs_in_it_are_told(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "end_below", lambda path: [f"ended {path.name}", "and more"])
    assert folder.undo() == f"ended x; and more; removed {folder.path}"


def test_what_is_mounted_in_it_keeps_it(
    folder: Folder, quiet: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def below(path: Path) -> list[Path]:
        asked.append(path)
        return [Path("/inner"), Path("/outer")]

    monkeypatch.setattr(mounts, "below", below)
    words = rf"^{folder.path} stays, for something is mounted at /inner$"
    with pytest.raises(MachineError, match=words):
        folder.undo()
    assert (asked, quiet) == ([folder.path], [])
    assert (folder.path / "deep" / "file").exists()


def test_what_cannot_be_removed_is_told(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries: what was killed may still be at work."""
    asked: list[list[str]] = []

    def stuck(command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        assert options["capture_output"]
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", "rm: busy\n")

    monkeypatch.setattr(scratch.subprocess, "run", stuck)  # type: ignore[attr-defined]
    monkeypatch.setattr(scratch.time, "sleep", lambda _: None)  # type: ignore[attr-defined]
    with pytest.raises(MachineError, match=rf"^{folder.path} cannot be removed: rm: busy$"):
        folder.undo()
    removing = ["rm", "-rf", "--one-file-system", "--", str(folder.path)]
    assert [command for command in asked if command[0] == "rm"] == [removing] * 5


def test_another_folder_in_its_place_stays(folder: Folder, quiet: list[Path]) -> None:
    folder.path.rename(folder.path.with_name("moved"))
    folder.path.mkdir()
    assert folder.undo() == ""
    assert folder.path.is_dir()
    assert quiet == []
    # One whose number was not noted, since a kill came, is known by its name alone.
    assert Folder(folder.path).is_there()


def test_a_link_in_its_place_is_not_followed(folder: Folder) -> None:
    folder.path.rename(folder.path.with_name("moved"))
    folder.path.symlink_to("moved")
    assert not folder.is_there()
    assert folder.undo() == ""
    Folder(folder.path).undo()
    assert (folder.path.with_name("moved") / "deep" / "file").exists()


def test_names_cannot_be_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def token(length: int) -> str:
        asked.append(length)
        return "abc"

    monkeypatch.setattr(scratch.secrets, "token_hex", token)  # type: ignore[attr-defined]
    assert scratch.named(tmp_path, "x") == Folder(tmp_path / "x-abc")
    assert asked == [4]
