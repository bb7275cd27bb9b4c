"""scripts/drive: what its commands do to a drive and its files, and what they say."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.leftovers import leftovers, wait_for_nothing
from wallab import paths
from wallab.drives import byhand as handdrive
from wallab.machine import process


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


def started(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process, and return when it has said its first word."""
    child = process.spawn(command, cwd=paths.LAB, stdout=subprocess.PIPE)
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], 120)
    assert ready, f"{command} said nothing"
    assert child.stdout.readline()
    return child


class Place:
    """A directory with a simulated drive under it, in a mount namespace of its own."""

    def __init__(self, folder: Path, propagation: str = "private") -> None:
        self.folder = folder
        self.folder.mkdir()
        script = f"mount --make-r{propagation} / && echo ready && exec sleep infinity"
        self._holder = started(["unshare", "--mount", "sh", "-c", script])
        self.enter = ("nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt")
        self.files = Path(f"/proc/{self._holder.pid}/root") / folder.relative_to("/")

    def drive(self, command: str, *arguments: str, code: int = 0) -> str:
        """Run scripts/drive COMMAND on the directory."""
        return drive(command, self.folder, *arguments, code=code, enter=self.enter)

    def close(self) -> None:
        """Take a drive away that a failed test has left, and end the namespace."""
        try:
            if any(mounted.mount_point == self.folder for mounted in handdrive.every()):
                self.drive("down")
        finally:
            process.end_group(self._holder)


def test_profiles_are_listed() -> None:
    listed = json.loads(drive("profiles", "--json"))
    assert sorted(listed) == sorted(file.stem for file in (paths.DRIVE / "profiles").glob("*.toml"))
    assert all(description and "#" not in description for description in listed.values())
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
def test_a_trace_is_explained(place: Place, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    place.drive("cache", "off")
    place.drive("trace", str(trace))
    synced(place.files / "traced", "traced")
    place.drive("trace", "off")
    explanation = json.loads(drive("explain", trace, "--json"))
    writes = explanation["kinds"]["write"]
    assert writes["requests"] > 0
    assert (writes["cached"], writes["failed"]) == (0, 0)
    assert explanation["head_waited_s"] > 0
    lines = drive("explain", trace, "--csv").splitlines()
    assert lines[0].startswith("sequence,command,arrival")
    requests = sum(kind["requests"] for kind in explanation["kinds"].values())
    assert len(lines) == 1 + requests
    assert f"write   {writes['requests']:10}" in drive("explain", trace)
    assert "no trace of a drive" in drive("explain", Path(__file__), code=2)


@pytest.mark.stack
def test_a_busy_directory_is_left_alone(place: Place) -> None:
    with (place.files / "open").open("w"):
        assert "end what uses it" in place.drive("snapshot", code=2)
    assert "no snapshot" in place.drive("rollback", code=2)
    assert place.files.is_mount()


# What a run does when it begins.
RUN = """
import time
from wallab.machine import mounts
mounts.enter_private_namespace()
print("inside", flush=True)
time.sleep(3600)
"""


@pytest.mark.stack
@pytest.mark.parametrize("propagation", ["shared", "private"])
def test_a_run_that_goes_on_does_not_keep_the_drive(tmp_path: Path, propagation: str) -> None:
    """Mounts are shared on most machines, and private in containers: the run then has a copy."""
    place = Place(tmp_path / "d", propagation)
    try:
        place.drive("up", "--size", "512M")
        run = started([*place.enter, sys.executable, "-c", RUN])
        try:
            seen = Path(f"/proc/{run.pid}/mounts")
            assert str(place.folder) in seen.read_text()
            assert leftovers()["loops"]
            place.drive("down")
            assert run.poll() is None
            assert str(place.folder) not in seen.read_text()
            assert leftovers()["loops"] == []
        finally:
            process.end_group(run)
    finally:
        place.close()
    assert wait_for_nothing(30) == {}
