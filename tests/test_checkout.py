"""What tells one state of the lab from another."""

import hashlib
from pathlib import Path

import pytest

from wallab.machine import checkout, provision


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A small lab."""
    folder = tmp_path / "lab"
    (folder / "bench").mkdir(parents=True)
    (folder / "bench" / "run.py").write_text("1")
    (folder / "load.sql").write_text("2")
    return folder


def test_digest_is_that_of_the_code(lab: Path) -> None:
    before = checkout.files((lab,))
    (lab / "bench" / "run.py").write_text("2")
    changed = checkout.files((lab,))
    (lab / "bench" / "run.py").rename(lab / "bench" / "ran.py")
    renamed = checkout.files((lab,))
    (lab / "new.py").touch()
    assert len({before, changed, renamed, checkout.files((lab,))}) == 4


def test_digest_is_the_same_wherever_the_lab_is(lab: Path) -> None:
    before = checkout.files((lab,))
    elsewhere = lab.parent / "elsewhere" / "lab"
    elsewhere.parent.mkdir()
    lab.rename(elsewhere)
    (elsewhere / "__pycache__").mkdir()
    (elsewhere / "__pycache__" / "run.pyc").touch()
    (elsewhere / "notes.txt").touch()
    assert checkout.files((elsewhere,)) == before


def test_own_code_has_a_digest() -> None:
    assert len(checkout.files()) == 64
    assert checkout.files() != checkout.files(checkout.CODE[:1])


def test_program_of_the_drives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "wal-drive"
    monkeypatch.setattr(provision, "drive_program", lambda: program)
    assert checkout.drive_program() == ""
    program.write_bytes(b"drive")
    assert checkout.drive_program() == hashlib.sha256(b"drive").hexdigest()
