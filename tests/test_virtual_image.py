"""Images for the guest: what is in them counts, and nothing else."""

import io
import os
import subprocess
from pathlib import Path

import pytest

from wallab.machine import mounts
from wallab.virtual import erofs
from wallab.virtual.erofs import Entry


def tree(home: Path, names: list[str]) -> dict[str, Entry]:
    """Files of these names in a folder, made in their order, and a few things beside."""
    home.mkdir()
    for name in names:
        (home / name).write_text(f"I am {name}\n" * 1000)
    files = {f"some/where/{name}": Entry(file=home / name) for name in names}
    return {
        **files,
        "link": Entry(link="some/where"),
        "run": Entry(text=b"#!/bin/sh\n", executable=True),
        "empty": Entry(text=b""),
        "folder": Entry(),
    }


NAMES = [f"a-rather-long-name-of-a-file-number-{number}" for number in range(300)]


def image(entries: dict[str, Entry]) -> bytes:
    """The image's bytes."""
    stream = io.BytesIO()
    erofs.write(entries, stream)
    return stream.getvalue()


def test_another_folder_time_and_order_make_the_same_image(tmp_path: Path) -> None:
    first = tree(tmp_path / "first", NAMES)
    second = tree(tmp_path / "another name", NAMES[::-1])
    for file in (tmp_path / "another name").iterdir():
        os.utime(file, (1, 1))
        file.chmod(0o600)
    assert image(first) == image(dict(reversed(second.items())))


def test_content_rights_and_names_make_another_image(tmp_path: Path) -> None:
    entries = tree(tmp_path / "files", NAMES[:3])
    known = image(entries)
    assert image(entries | {"empty": Entry(text=b"x")}) != known
    assert image(entries | {"run": Entry(text=b"#!/bin/sh\n")}) != known
    assert image(entries | {"more": Entry(text=b"")}) != known


@pytest.mark.stack
def test_the_kernel_reads_the_image(tmp_path: Path) -> None:
    if not mounts.kernel_knows("erofs"):
        pytest.skip("this kernel has no erofs")
    entries = tree(tmp_path / "files", NAMES)
    file, point = tmp_path / "image", tmp_path / "mounted"
    file.write_bytes(image(entries))
    point.mkdir()
    subprocess.run(["mount", "-t", "erofs", "-o", "loop,ro", file, point], check=True)
    try:
        assert sorted(entry.name for entry in point.iterdir()) == [
            "empty", "folder", "link", "run", "some",
        ]  # fmt: skip
        for name in NAMES:
            whole = (point / "link" / name).read_text()
            assert whole == f"I am {name}\n" * 1000
        assert os.access(point / "run", os.X_OK)
        assert (point / "empty").read_bytes() == b""
        assert list((point / "folder").iterdir()) == []
    finally:
        subprocess.run(["umount", point], check=True)
