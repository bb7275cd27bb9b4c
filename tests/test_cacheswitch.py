"""Write caches of real disks: tools that stand in answer as hdparm, sdparm and nvme do."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fakedisks import ata, scsi
from fakesysfs import FakeMachine, stand_in

from wallab.errors import MachineError
from wallab.machine import blockdevice, cacheswitch
from wallab.machine.blockdevice import Disk
from wallab.machine.cacheswitch import CacheState


@pytest.fixture
def bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-in tools come first on PATH; the file has the bit that they show and set."""
    return stand_in(tmp_path, monkeypatch)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """A machine without disks."""
    return FakeMachine(tmp_path / "machine")


def nvme(machine: FakeMachine) -> Disk:
    """An NVMe namespace."""
    return blockdevice.describe(machine.nvme("nvme0n1", "259:0"))


CALLS: dict[Callable[[FakeMachine], Disk], list[str]] = {
    ata: ["hdparm -W0 /dev/sda", "hdparm -W1 /dev/sda"],
    scsi: ["sdparm --clear=WCE /dev/sdb", "sdparm --set=WCE /dev/sdb"],
    nvme: ["nvme set-feature /dev/nvme0 -f 6 -v 0", "nvme set-feature /dev/nvme0 -f 6 -v 1"],
}


@pytest.mark.parametrize("kind", [ata, scsi, nvme])
def test_switched_read_back_and_put_back(
    machine: FakeMachine, bit: Path, kind: Callable[[FakeMachine], Disk]
) -> None:
    disk = kind(machine)
    before = cacheswitch.state(disk)
    assert before == CacheState(disk.identity, disk.name, "on", "write back")
    cacheswitch.set_to(disk, "off", "write through")
    assert bit.read_text().strip() == "0"
    assert cacheswitch.state(disk) == CacheState(disk.identity, disk.name, "off", "write through")
    message = cacheswitch.put_back(before, machine.root)
    assert message == f"put the write cache of {disk.name} back: on, write back"
    assert cacheswitch.state(disk) == before
    calls = Path(f"{bit}.calls").read_text().splitlines()
    off, on = CALLS[kind]
    assert calls.index(off) < calls.index(on)
    # Nothing but asking is done where nothing is to be changed.
    Path(f"{bit}.calls").unlink()
    assert cacheswitch.put_back(before, machine.root) == ""
    assert not {off, on} & set(Path(f"{bit}.calls").read_text().splitlines())


def test_nvme_over_two_paths(machine: FakeMachine, bit: Path) -> None:
    disk = blockdevice.describe(machine.nvme_paths("nvme0n1", "259:0", 2))
    assert disk.kind == "nvme"
    cacheswitch.set_to(disk, "off", "write through")
    calls = Path(f"{bit}.calls").read_text()
    for number in range(2):
        assert f"nvme set-feature /dev/nvme{number} -f 6 -v 0\n" in calls


def test_scsi_is_read_again_by_the_kernel(machine: FakeMachine, bit: Path) -> None:
    disk = scsi(machine)
    cacheswitch.set_to(disk, "off", "write through")
    assert (disk.sysfs / "device/rescan").read_text() == "1"


@pytest.mark.parametrize("kind", [ata, scsi, nvme])
def test_tool_that_says_done_and_did_nothing(
    machine: FakeMachine, bit: Path, kind: Callable[[FakeMachine], Disk]
) -> None:
    Path(f"{bit}.stuck").touch()
    with pytest.raises(MachineError, match="the write cache stays on, not off"):
        cacheswitch.set_to(kind(machine), "off", "write through")


def test_guest_whose_host_lets_it(machine: FakeMachine) -> None:
    disk = blockdevice.describe(machine.virtio("vdb", "254:16", switchable=True))
    cacheswitch.set_to(disk, "off", "write through")
    assert (disk.sysfs / "cache_type").read_text().strip() == "write through"
    assert cacheswitch.state(disk).drive == "off"
    cacheswitch.set_to(disk, "on", "write through")
    assert cacheswitch.state(disk) == CacheState("disk-vdb", "vdb", "on", "write through")


def test_guest_whose_host_does_not(machine: FakeMachine) -> None:
    disk = blockdevice.describe(machine.virtio("vdb", "254:16", switchable=False))
    with pytest.raises(MachineError, match=r"vdb is the disk of a guest, whose host .*; it is on"):
        cacheswitch.set_to(disk, "off", "write through")
    assert (disk.sysfs / "cache_type").read_text().strip() == "write back"
    assert (disk.sysfs / "queue/write_cache").read_text().strip() == "write back"
    cacheswitch.set_to(disk, "on", "write through")  # what it is; only the kernel is told


def test_raid_controller_is_reported_and_not_touched(machine: FakeMachine, bit: Path) -> None:
    disk = blockdevice.describe(machine.scsi("sda", "8:0", "megaraid_sas", "LSI", "MR9361-8i", 0))
    for drive in ("on", "off"):
        with pytest.raises(MachineError, match=r"RAID controller \(megaraid_sas\).*storcli"):
            cacheswitch.set_to(disk, drive, "write through")
    assert cacheswitch.state(disk) == CacheState(disk.identity, "sda", "unknown", "write back")
    assert not Path(f"{bit}.calls").exists()


def test_disk_is_found_under_its_new_name(tmp_path: Path, bit: Path) -> None:
    before = cacheswitch.state(ata(FakeMachine(tmp_path / "before")))
    bit.write_text("0")
    after = FakeMachine(tmp_path / "after")
    after.scsi("sdq", "65:0", "ahci", "ATA", "ST3500413AS", 0)
    assert "of sdq back: on" in cacheswitch.put_back(before, after.root)
    assert bit.read_text().strip() == "1"


def test_disk_that_is_not_here(machine: FakeMachine) -> None:
    with pytest.raises(MachineError, match=r"is not here.*scripts/drive restore"):
        cacheswitch.put_back(CacheState("naa.1", "sdz", "on", "write back"), machine.root)
