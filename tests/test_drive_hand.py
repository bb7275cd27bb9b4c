"""scripts/drive: what its commands do to a drive and its files, and what they say."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallab import paths, process
from wallab.leftovers import wait_for_nothing


def drive(*arguments: str | Path, code: int = 0, enter: tuple[str, ...] = ()) -> str:
    """Run scripts/drive and return its output; its messages if it is to fail."""
    result = subprocess.run(
        [*enter, paths.LAB / "scripts" / "drive", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == code, result.stderr
    return result.stdout if code == 0 else result.stderr


class Place:
    """A directory with a simulated drive under it, in a mount namespace of its own.

    Another lab on the machine that makes its namespace just then would keep a copy of the mount.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self._holder = process.spawn(["unshare", "--mount", "sleep", "infinity"])
        self._enter = ("nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt")
        own = Path("/proc/self/ns/mnt").readlink()
        deadline = time.monotonic() + 60
        while Path(f"/proc/{self._holder.pid}/ns/mnt").readlink() == own:
            assert time.monotonic() < deadline, "unshare made no namespace"
            time.sleep(0.01)
        self.files = Path(f"/proc/{self._holder.pid}/root") / folder.relative_to("/")

    def drive(self, command: str, *arguments: str, code: int = 0) -> str:
        """Run scripts/drive COMMAND on the directory."""
        return drive(command, self.folder, *arguments, code=code, enter=self._enter)

    def close(self) -> None:
        """End the namespace."""
        process.end_group(self._holder)


def test_profiles_are_listed() -> None:
    listed = json.loads(drive("profiles", "--json"))
    assert sorted(listed) == sorted(file.stem for file in (paths.DRIVE / "profiles").glob("*.toml"))
    assert all(said and "#" not in said for said in listed.values())
    assert "raid-bbwc" in drive("profiles")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory with a simulated drive under it."""
    place = Place(tmp_path / "d")
    try:
        place.drive("up", "--size", "512M", "--write-cache", "on")
        try:
            yield place
        finally:
            place.drive("down")
    finally:
        place.close()
    assert wait_for_nothing(30) == {}


def synced(file: Path, text: str) -> None:
    """Write a file and sync it."""
    with file.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


@pytest.mark.stack
def test_a_drive_is_switched_cut_and_restored(place: Place) -> None:
    place.drive("timing", "off")
    synced(place.files / "kept", "kept")
    place.drive("snapshot")
    (place.files / "kept").unlink()
    synced(place.files / "late", "late")
    place.drive("rollback")
    assert (place.files / "kept").read_text() == "kept"
    assert not (place.files / "late").exists()

    place.drive("timing", "on")
    assert "kernel is told write through" in place.drive("cache", "on-unflushed")
    place.drive("tell", "destage", "pause")
    synced(place.files / "lost", "lost")
    cut = json.loads(place.drive("power-cut", "--json"))
    assert cut["lost_sectors"] == sum(count for _, count in cut["lost"]) > 0
    assert json.loads(place.drive("state", "--json"))["power"] == "off"
    assert "off already" in place.drive("power-cut", code=2)
    with pytest.raises(OSError, match="Input/output error"):
        synced(place.files / "none", "none")
    place.drive("power-on")
    assert (place.files / "kept").read_text() == "kept"
    assert not (place.files / "lost").exists()

    place.drive("profile", "nvme-plp")
    place.drive("cache", "battery")
    synced(place.files / "safe", "safe")
    cut = json.loads(place.drive("power-cut", "--within", "5", "--seed", "3", "--json"))
    assert cut["lost"] == []
    place.drive("power-on")
    assert (place.files / "safe").read_text() == "safe"
    assert "profile        nvme-plp" in place.drive("state")
    assert "no drive profile “floppy”" in place.drive("profile", "floppy", code=2)


@pytest.mark.stack
def test_a_busy_directory_is_left_alone(place: Place) -> None:
    with (place.files / "open").open("w"):
        assert "end what uses it" in place.drive("snapshot", code=2)
    assert "no snapshot" in place.drive("rollback", code=2)
    assert place.files.is_mount()
