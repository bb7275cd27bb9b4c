"""Loop devices and mounts: what is the lab's is told from what others have in its place."""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallab.errors import MachineError
from wallab.machine import ledger, mountcopies, mounts, process
from wallab.machine.ledger import Ledger
from wallab.machine.loop import Attached, LoopDevice, Queue
from wallab.machine.mounts import Mounted

pytestmark = pytest.mark.stack

LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81
MODES = ("write back", "write through")


@pytest.fixture(autouse=True)
def own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records for this test alone."""
    monkeypatch.setenv("WALLAB_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setenv("WALLAB_STATE", str(tmp_path / "state"))


@pytest.fixture
def device() -> Iterator[Path]:
    """A loop device, free, that nobody else is given."""
    number = 1000 + os.getpid() % 1000
    node = Path(f"/dev/loop{number}")
    with open("/dev/loop-control", "rb") as control:  # noqa: PTH123
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
        try:
            if not node.exists():
                subprocess.run(["mknod", node, "b", "7", str(number)], check=True)
            yield node
            subprocess.run(["losetup", "--detach", node], capture_output=True)
        finally:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
            node.unlink(missing_ok=True)


def image(folder: Path, name: str = "image") -> Path:
    """Make an empty file system in a file."""
    file = folder / name
    with file.open("wb") as stream:
        stream.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", file], check=True)
    return file


def attach(device: Path, file: Path) -> Attached:
    """Attach the file to the device, and note that."""
    subprocess.run(["losetup", device, file], check=True)
    return Attached.note(device)


def detach(device: Path) -> None:
    """Make the device free."""
    subprocess.run(["losetup", "--detach", device], check=True)


def is_free(device: Path) -> bool:
    """Whether nothing is attached to the device."""
    return not Path(f"/sys/block/{device.name}/loop/backing_file").exists()


@contextlib.contextmanager
def mounted(point: Path, *arguments: str | Path) -> Iterator[None]:
    """Mount something at the point, and unmount what is there then."""
    point.mkdir(exist_ok=True)
    subprocess.run(["mount", *arguments, point], check=True)
    try:
        yield
    finally:
        while mounts.at(point):
            subprocess.run(["umount", "--lazy", point], check=True)


@pytest.fixture
def owned() -> Iterator[Ledger]:
    """A ledger that has nothing left at the end."""
    made = Ledger.open()
    yield made
    made.close()
    assert ledger.dead() == []


def clear(owned: Ledger) -> list[str]:
    """Clear the ledger as the start after a kill does; what is left is this process's again."""
    with process.started(["sleep", "600"]) as owner:
        owned.hand_over(owner.pid)
    lines = ledger.clear_dead()
    owned.hand_over(os.getpid())
    return lines


# Loop devices.


@pytest.mark.parametrize("how", ["attached", "killed", "free by then", "ends"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("read_ahead", [0, 512])
def test_settings_are_put_back_as_they_were(
    tmp_path: Path, device: Path, mode: str, read_ahead: int, how: str
) -> None:
    queue = Queue(device)
    file = image(tmp_path)
    for to_mode in MODES:
        attach(device, file)
        queue.cache_mode = mode
        queue.read_ahead = read_ahead
        attached = Attached.note(device)
        owned = Ledger.open()
        owned.add(attached)
        queue.cache_mode = to_mode
        queue.read_ahead = 64
        if how == "attached":
            assert attached.put_settings_back()
            assert queue.read_ahead == read_ahead
            assert not attached.put_settings_back()
        if how == "free by then":
            detach(device)
        if how in {"killed", "free by then"}:
            assert any(f"put the settings of {device} back" in line for line in clear(owned))
        else:
            owned.close()
        assert is_free(device)
        assert queue.cache_mode == mode
        if how == "free by then":  # else the kernel forgets its read-ahead as the device is freed
            assert queue.read_ahead == read_ahead


def test_a_device_of_the_lab_is_given_back(tmp_path: Path) -> None:
    loop = LoopDevice(image(tmp_path))
    assert loop.attached.holds()
    loop.queue.cache_mode = "write through"
    loop.detach()
    assert not loop.attached.holds()


def test_a_number_that_another_file_has_by_now(tmp_path: Path, device: Path) -> None:
    """It is neither detached nor switched, and its settings are put back when it is free."""
    queue = Queue(device)
    file = image(tmp_path)
    before = attach(device, file)
    owned = Ledger.open()
    owned.add(before)
    queue.cache_mode = "write through"
    detach(device)
    theirs = attach(device, file)  # the very same: only the attachment is another
    assert any(f"{device} is another's by now" in line for line in clear(owned))
    assert theirs.holds()
    assert queue.cache_mode == "write through"
    assert before in things()
    detach(device)
    assert any(f"put the settings of {device} back" in line for line in clear(owned))
    assert queue.cache_mode == "write back"


def things() -> list[object]:
    """What the one record has."""
    (record,) = ledger.records().readable.values()
    return list(record.owned)


def test_a_device_that_stays_in_use_is_told(
    tmp_path: Path, device: Path, owned: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallab.machine.loop.PATIENCE", 0.3)
    owned.add(attach(device, image(tmp_path)))
    with device.open("rb"):
        assert any(f"{device} is in use" in line for line in clear(owned))


def test_a_device_that_is_no_more(owned: Ledger) -> None:
    owned.add(Attached(Path("/dev/loop99999"), "x", 1, "write back", 0))
    assert all("loop" not in line for line in clear(owned))


# Mounts elsewhere.


def test_a_drives_mount_is_undone(tmp_path: Path, device: Path, owned: Ledger) -> None:
    point = tmp_path / "d"
    drive = Mounted(point, "ext4", attach(device, image(tmp_path)))
    for thing in (drive.loop, drive):
        owned.add(thing)
    with mounted(point, device):
        assert drive.is_on_top()
        lines = clear(owned)
        assert f"unmounted {point}" in lines
        assert mounts.at(point) is None
        assert is_free(device)


def test_what_covers_a_drive_is_not_unmounted(tmp_path: Path, device: Path, owned: Ledger) -> None:
    point = tmp_path / "d"
    drive = Mounted(point, "ext4", attach(device, image(tmp_path)))
    owned.add(drive)
    # By the name of its source the cover is the drive.
    with mounted(point, device), mounted(point, "-t", "tmpfs", device):
        top = mounts.at(point)
        assert top is not None
        assert (top.source, top.filesystem) == (str(device), "tmpfs")
        assert any("is mounted over the drive: unmount that first" in line for line in clear(owned))
        with pytest.raises(MachineError, match="unmount that first"):
            drive.unmount(patience=0)
        assert mounts.at(point) == top
        subprocess.run(["umount", point], check=True)
        assert f"unmounted {point}" in clear(owned)


def test_what_others_mounted_in_a_drives_place(tmp_path: Path, device: Path, owned: Ledger) -> None:
    """Where the loop device is theirs by now, too."""
    point = tmp_path / "d"
    file = image(tmp_path)
    owned.add(Mounted(point, "ext4", attach(device, file)))
    detach(device)
    attach(device, file)
    with mounted(point, device):
        assert clear(owned) == [f"removed {owned.folder}"]
        assert mounts.at(point) is not None


# Copies of mounts, in other namespaces.


@contextlib.contextmanager
def namespace(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the script in a mount namespace of its own until the block ends."""
    command = ["unshare", "--mount", "sh", "-ec", script]
    with process.started(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child


def device_is_shown(pid: int, device: Path) -> bool:
    """Whether the process sees a mount of the device."""
    return f" {device} " in Path(f"/proc/{pid}/mountinfo").read_text()


def test_copies_are_unmounted_without_running_what_is_there(tmp_path: Path, device: Path) -> None:
    point, ran = tmp_path / "d", tmp_path / "ran"
    drive = Mounted(point, "ext4", attach(device, image(tmp_path)))
    planted = tmp_path / "umount"
    planted.write_text(f"#!/bin/sh\ntouch {ran}\n")
    planted.chmod(0o755)
    script = (
        f"for file in $(which -a umount); do mount --bind {planted} $file; done; "
        "echo ready; exec sleep 600"
    )
    with mounted(point, device), namespace(script) as child:
        assert device_is_shown(child.pid, device)
        drive.unmount()
        assert drive.loop.holds()
        assert mountcopies.unmount(drive) == {}
        assert not device_is_shown(child.pid, device)
        assert not ran.exists()


def test_copies_are_found_behind_a_chroot(tmp_path: Path, device: Path) -> None:
    """What is in it calls its mounts by paths that are others' outside of it."""
    point, jail, other = tmp_path / "d", tmp_path / "jail", tmp_path / "jail" / "d"
    drive = Mounted(point, "ext4", attach(device, image(tmp_path)))
    other.mkdir(parents=True)
    # In the jail, the drive is at /d, where a file system of its own is outside of it.
    outside = Path(f"/wal-lab-test-{os.getpid()}")
    (jail / outside.name).mkdir()
    script = (
        f"mount --rbind / {jail}; mount -t tmpfs none {outside}; "
        f"mount --bind {point} {jail}{outside}; echo ready; exec chroot {jail} sleep 600"
    )
    outside.mkdir()
    try:
        with mounted(point, device), namespace(script) as child:
            assert device_is_shown(child.pid, device)
            drive.unmount()
            assert mountcopies.unmount(drive) == {}
            assert not device_is_shown(child.pid, device)
            entered = [
                "nsenter",
                f"--mount=/proc/{child.pid}/ns/mnt",
                "cat",
                "/proc/self/mountinfo",
            ]
            table = subprocess.run(entered, capture_output=True, text=True, check=True).stdout
            assert any(mount.point == outside for mount in mounts.parse(table))
            assert not any(mount.source == str(device) for mount in mounts.parse(table))
    finally:
        outside.rmdir()


def test_what_is_in_use_elsewhere_is_told(tmp_path: Path, device: Path) -> None:
    point = tmp_path / "d"
    drive = Mounted(point, "ext4", attach(device, image(tmp_path)))
    with mounted(point, device), namespace(f"cd {point}; echo ready; exec sleep 600") as child:
        drive.unmount()
        (reason,) = mountcopies.unmount(drive).values()
        assert reason == f"{point}: Device or resource busy"
        assert device_is_shown(child.pid, device)


def test_a_table_without_a_source() -> None:
    line = "36 25 0:46 / /srv/a\\040b rw,noatime shared:1 - tmpfs  ro,size=4k\n"
    (mount,) = mounts.parse(line)
    assert (mount.source, mount.point) == ("", Path("/srv/a b"))
    assert mount.all_options() == ("ro", "noatime", "size=4k")


def test_options_are_those_of_proc_mounts() -> None:
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    expected = [(Path(mounts.unescape(words[1])), words[3]) for words in lines]
    assert [(mount.point, ",".join(mount.all_options())) for mount in mounts.table()] == expected
