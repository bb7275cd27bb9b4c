"""Files in a tree that others write to: what is read, written and removed is in it, or an error."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wallab.files import beneath
from wallab.files.beneath import Content


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree; where the command was started, there are files of the same names."""
    for place in ("tree/deep", "here/deep"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        for file in (folder.parent / "a", folder / "b"):
            file.write_text(f"{place} {file.name}")
    (tmp_path / "here" / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "tree"


@pytest.fixture(autouse=True)
def here_as_it_was(root: Path) -> Any:
    """What is elsewhere is not touched."""
    yield
    here = root.parent / "here"
    assert (here / "a").read_text() == "here/deep a"
    assert (here / "deep" / "b").read_text() == "here/deep b"
    assert (here / "empty").is_dir()
    assert sorted(path.name for path in here.iterdir()) == ["a", "deep", "empty"]


def test_read(root: Path) -> None:
    file = root / "deep" / "b"
    file.chmod(0o640)
    os.utime(file, ns=(5, 1_234_567_890))
    assert beneath.read(root, "deep/b") == Content(b"tree/deep b", 0o640, 1_234_567_890)
    assert beneath.read(root, "a") is not None
    # What is not there: the file, its folder, or a folder where a file is.
    for name in ("c", "none/b", "a/b", "a/b/c"):
        assert beneath.read(root, name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a\0b", "deep/", "/a", "deep//b", "./a", "../x"])
def test_names_that_are_none(root: Path, name: str) -> None:
    wrong = {"a\0b": "a\0b", ".": ".", "..": "..", "./a": ".", "../x": ".."}.get(name, "")
    acts: tuple[Callable[[], object], ...] = (
        lambda: beneath.read(root, name),
        lambda: beneath.write(root, name, Content(b"x", 0o644, 0)),
        lambda: beneath.remove(root, name),
        lambda: beneath.set_stamp(root, name, 1),
    )
    for act in acts:
        with pytest.raises(OSError, match="Invalid argument") as refused:
            act()
        assert (refused.value.errno, refused.value.filename) == (errno.EINVAL, wrong)


def test_what_is_no_plain_file(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(OSError, match="no plain file") as refused:
        beneath.read(root, "pipe")
    assert (refused.value.errno, refused.value.filename) == (errno.EINVAL, "pipe")
    with pytest.raises(IsADirectoryError):
        beneath.read(root, "deep")
    with pytest.raises(NotADirectoryError):
        beneath.read(root, "pipe/x")


@pytest.mark.parametrize("target", ["deep", "a", "../here/deep", "../here/a", "none"])
def test_no_link_is_followed(root: Path, target: str) -> None:
    (root / "link").symlink_to(target)
    for name in ("link", "link/b"):
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            beneath.read(root, name)
    with pytest.raises(NotADirectoryError):
        beneath.write(root, "link/b", Content(b"x", 0o644, 0))
    with pytest.raises(NotADirectoryError):
        beneath.remove(root, "link/b")
    # The link itself may go, or be replaced.
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    beneath.remove(root, "link")
    assert not (root / "link").is_symlink()
    (root / "link").symlink_to(target)
    beneath.write(root, "link", Content(b"x", 0o644, 0))
    assert not (root / "link").is_symlink()
    assert (root / "link").read_text() == "x"
    assert (root / "a").read_bytes() == before[root / "a"]


def test_the_root_is_no_link(root: Path) -> None:
    (root.parent / "root").symlink_to("tree")
    with pytest.raises(NotADirectoryError):
        beneath.read(root.parent / "root", "a")


def test_where_a_folder_would_be_is_a_file(root: Path) -> None:
    """As the words of an error have it."""
    with pytest.raises(FileNotFoundError, match="No such file or directory") as refused:
        beneath.write(root, "a/b", Content(b"x", 0o644, 0))
    assert (refused.value.errno, refused.value.filename) == (errno.ENOENT, "a")
    beneath.remove(root, "a/b")
    assert (root / "a").is_file()


def test_write(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[int, int]] = []
    open_ = os.open

    def watched(name: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if flags & os.O_CREAT:
            opened.append((flags, mode))
        return open_(name, flags, mode, **options)

    monkeypatch.setattr(os, "open", watched)
    beneath.write(root, "new/deeper/c", Content(b"text", 0o751, 0))
    file = root / "new" / "deeper" / "c"
    assert file.read_bytes() == b"text"
    assert stat.S_IMODE(file.stat().st_mode) == 0o751
    assert file.stat().st_mtime > 0
    # Nobody else reads it before it has its rights, and what was put there meanwhile stays.
    ((flags, mode),) = opened
    assert mode == 0o600
    assert flags == os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    beneath.write(root, "a", Content(b"", 0o600, 0))
    assert (root / "a").read_bytes() == b""
    (root / "empty").mkdir()
    beneath.write(root, "empty", Content(b"x", 0o600, 0))
    assert (root / "empty").is_file()
    with pytest.raises(OSError, match="not empty"):
        beneath.write(root, "deep", Content(b"x", 0o600, 0))


def test_a_new_file_in_place_of_one_with_two_names(root: Path) -> None:
    (root / "other").hardlink_to(root / "a")
    beneath.write(root, "a", Content(b"x", 0o600, 0))
    assert (root / "other").read_text() == "tree/deep a"


def test_remove(root: Path) -> None:
    (root / "empty").mkdir()
    for name in ("a", "deep/b", "empty", "none", "none/b"):
        beneath.remove(root, name)
        assert not (root / name).exists()
    (root / "deep" / "c").touch()
    with pytest.raises(OSError, match="not empty"):
        beneath.remove(root, "deep")


def test_set_stamp(root: Path) -> None:
    beneath.set_stamp(root, "deep/b", 1_500_000_001)
    assert (root / "deep" / "b").stat().st_mtime_ns == 1_500_000_001
    (root / "link").symlink_to("a")
    before = (root / "a").stat().st_mtime_ns
    beneath.set_stamp(root, "link", 7)
    assert (root / "a").stat().st_mtime_ns == before
    assert (root / "link").lstat().st_mtime_ns == 7
    with pytest.raises(FileNotFoundError):
        beneath.set_stamp(root, "none", 7)
