"""The disks under a directory, on made-up machines."""

from pathlib import Path

import pytest
from fakesysfs import FakeMachine

from wallab.machine import blockdevice
from wallab.machine.blockdevice import Stack

HERE = Path("/srv/x")


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """A machine whose root is on no block device, as in a container."""
    made = FakeMachine(tmp_path)
    made.mount(Path("/"), "0:30", "overlay", "overlay")
    return made


def stack_of(machine: FakeMachine, directory: Path = HERE) -> Stack:
    """What is under the directory."""
    return blockdevice.stack_under(blockdevice.mount_under(directory, machine.root), machine.root)


def names(stack: Stack) -> tuple[list[str], list[tuple[str, str]]]:
    """The devices between, and the disks with their kinds."""
    return [device.name for device in stack.upper], [(disk.name, disk.kind) for disk in stack.disks]


def test_partition_of_an_ata_disk(machine: FakeMachine) -> None:
    disk = machine.scsi("sda", "8:0", "ahci", "ATA", "ST3500413AS", 0)
    machine.partition(disk, "sda1", "8:1")
    machine.mount(HERE, "8:1")
    stack = stack_of(machine)
    assert names(stack) == ([], [("sda", "ata")])
    assert stack.disks[0].model == "ST3500413AS"
    assert stack.disks[0].controller == "ahci"
    assert stack.disks[0].identity == "naa.5000c50000000000"


def test_scsi_disk_without_partitions(machine: FakeMachine) -> None:
    machine.scsi("sdc", "8:32", "mpt3sas", "SEAGATE", "ST600MM0006", 2)
    machine.mount(HERE, "8:32")
    stack = stack_of(machine)
    assert names(stack) == ([], [("sdc", "scsi")])
    assert stack.disks[0].model == "SEAGATE ST600MM0006"


def test_nvme_and_virtio(machine: FakeMachine) -> None:
    machine.partition(machine.nvme("nvme0n1", "259:0"), "nvme0n1p2", "259:2")
    machine.virtio("vdb", "254:16", switchable=True)
    machine.mount(HERE, "259:2")
    machine.mount(HERE / "deeper", "254:16")
    assert names(stack_of(machine)) == ([], [("nvme0n1", "nvme")])
    assert stack_of(machine).disks[0].model == "INTEL SSDPE2KX010T8"
    assert names(stack_of(machine, HERE / "deeper/still")) == ([], [("vdb", "virtio")])


def test_lvm_over_md_over_partitions(machine: FakeMachine) -> None:
    parts = []
    for place, name in enumerate(("sda", "sdb")):
        disk = machine.scsi(name, f"8:{16 * place}", "ahci", "ATA", "WDC WD40EFRX", place)
        parts.append(machine.partition(disk, f"{name}2", f"8:{16 * place + 2}"))
    array = machine.made_of("md0", "9:0", *parts)
    machine.made_of("dm-3", "253:3", array)
    machine.mount(HERE, "253:3", "ext4", "/dev/mapper/vg-lv")
    assert names(stack_of(machine)) == (["dm-3", "md0"], [("sda", "ata"), ("sdb", "ata")])


def test_multipath_shows_every_path(machine: FakeMachine) -> None:
    paths = [
        machine.scsi(name, f"8:{16 * place}", "qla2xxx", "HP", "HSV300", place)
        for place, name in enumerate(("sda", "sdb"))
    ]
    machine.made_of("dm-1", "253:1", machine.made_of("dm-0", "253:0", *paths))
    machine.mount(HERE, "253:1")
    assert names(stack_of(machine)) == (["dm-1", "dm-0"], [("sda", "scsi"), ("sdb", "scsi")])


@pytest.mark.parametrize(
    ("driver", "vendor", "model"),
    [("megaraid_sas", "LSI", "MR9361-8i"), ("hpsa", "HP", "LOGICAL VOLUME"),
     ("mpt3sas", "LSI", "Logical Volume"), ("megaraid_sas", "ATA", "INTEL SSDSC2BB")],
)  # fmt: skip
def test_raid_controllers(machine: FakeMachine, driver: str, vendor: str, model: str) -> None:
    machine.scsi("sda", "8:0", driver, vendor, model, 0)
    machine.mount(HERE, "8:0")
    assert names(stack_of(machine)) == ([], [("sda", "raid")])
    assert stack_of(machine).disks[0].controller == driver


def test_btrfs_over_two_disks(machine: FakeMachine) -> None:
    volume = machine.root / "sys/fs/btrfs/2b67/devices"
    volume.mkdir(parents=True)
    for place, name in enumerate(("sda", "sdb")):
        disk = machine.scsi(name, f"8:{16 * place}", "ahci", "ATA", "X", place)
        (volume / name).symlink_to(disk)
    machine.mount(HERE, "0:45", "btrfs", "/dev/sdb")
    assert names(stack_of(machine)) == ([], [("sda", "ata"), ("sdb", "ata")])


def test_no_block_device(machine: FakeMachine) -> None:
    machine.mount(HERE, "0:46", "nfs4", "server:/export")
    assert names(stack_of(machine)) == ([], [])


def test_the_latest_of_mounts_on_one_point_counts(machine: FakeMachine) -> None:
    machine.scsi("sda", "8:0", "ahci", "ATA", "X", 0)
    machine.mount(Path("/srv/a b"), "0:46", "tmpfs", "tmpfs")
    text = (machine.root / "proc/self/mountinfo").read_text().replace("/srv/a b", "/srv/a\\040b")
    line = "9 1 8:0 / /srv/a\\040b rw - xfs /dev/sda rw\n"
    (machine.root / "proc/self/mountinfo").write_text(text + line)
    assert names(stack_of(machine, Path("/srv/a b/c")))[1] == [("sda", "ata")]
    assert names(stack_of(machine, Path("/srv/a")))[1] == []
