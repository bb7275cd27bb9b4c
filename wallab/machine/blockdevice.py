"""The block devices under a directory, found through partitions, LVM, md and dm.

All is read from /proc and /sys below a root, which tests replace.
"""

import re
from pathlib import Path
from typing import Literal

import msgspec

from wallab.errors import MachineError
from wallab.machine import mounts
from wallab.machine.mounts import Mount

Kind = Literal["ata", "scsi", "nvme", "virtio", "loop", "raid", "other"]

# Drivers whose disks are volumes of a controller with a cache of its own.
_RAID_DRIVERS = (
    "3w-9xxx", "3w-sas", "aacraid", "arcmsr", "cciss", "gdth", "hpsa", "ips", "megaraid_sas",
    "mpi3mr", "smartpqi",
)  # fmt: skip


class Disk(msgspec.Struct, frozen=True):
    """A disk at the bottom of a stack of devices."""

    name: str
    kind: Kind
    sysfs: Path
    model: str
    controller: str
    """The driver of its SCSI host, where it has one."""
    identity: str
    """What tells it from other disks after a reboot has renamed it."""


class Stack(msgspec.Struct, frozen=True):
    """What is under a file system: disks, and the devices that were made of them."""

    upper: tuple[Path, ...]
    """Folders in sysfs of dm and md devices."""
    disks: tuple[Disk, ...]


def mount_under(directory: Path, root: Path = Path("/")) -> Mount:
    """Return the mount that the directory, an absolute path without links, is on."""
    around = [
        mount
        for mount in mounts.table(root / "proc/self/mountinfo")
        if mount.point == directory or mount.point in directory.parents
    ]
    if not around:
        raise MachineError(f"{directory}: no mount is known that it is on")
    # Of two on the same point the later one covers the earlier.
    return max(reversed(around), key=lambda mount: len(mount.point.parts))


def stack_under(mount: Mount, root: Path = Path("/")) -> Stack:
    """Return the disks under the mount; none if it is on no block device."""
    upper: dict[Path, None] = {}
    disks: dict[Path, None] = {}

    def descend(folder: Path) -> None:
        if (folder / "partition").exists():
            folder = folder.parent
        slaves = sorted((folder / "slaves").glob("*"))
        (upper if slaves else disks)[folder] = None
        for slave in slaves:
            descend(slave.resolve())

    for folder in _devices(mount, root):
        descend(folder)
    return Stack(tuple(upper), tuple(describe(folder) for folder in disks))


def _devices(mount: Mount, root: Path) -> list[Path]:
    """Return the folders in sysfs of the devices that the file system names."""
    if not mount.device.startswith("0:"):
        return [(root / "sys/dev/block" / mount.device).resolve()]
    if mount.filesystem != "btrfs":
        return []
    # btrfs has a device number of its own, and may span several devices.
    name = (root / mount.source.lstrip("/")).resolve().name
    for volume in sorted((root / "sys/fs/btrfs").glob("*/devices")):
        names = sorted(device.name for device in volume.iterdir())
        if name in names:
            return [(root / "sys/class/block" / device).resolve() for device in names]
    return []


def every_disk(root: Path = Path("/")) -> list[Disk]:
    """Return the disks of this machine."""
    return [describe(folder.resolve()) for folder in sorted((root / "sys/block").glob("*"))]


def describe(folder: Path) -> Disk:
    """Describe the disk that has this folder in sysfs."""
    name = folder.name
    controller = ""
    for parent in folder.parents:
        if re.fullmatch(r"host\d+", parent.name):
            controller = read(parent / "scsi_host" / parent.name / "proc_name")
    vendor, model = read(folder / "device/vendor"), read(folder / "device/model")
    sources = ("device/wwid", "wwid", "serial", "device/serial", "loop/backing_file")
    return Disk(
        name=name,
        kind=_kind(folder, vendor, model, controller),
        sysfs=folder,
        # A virtio disk has a number for a vendor.
        model=model if vendor in ("", "ATA") or vendor.startswith("0x") else f"{vendor} {model}",
        controller=controller,
        identity=next(filter(None, (read(folder / source) for source in sources)), name),
    )


def _kind(folder: Path, vendor: str, model: str, controller: str) -> Kind:
    name = folder.name
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith("vd"):
        return "virtio"
    if name.startswith("loop"):
        return "loop"
    if not name.startswith("sd"):
        return "other"
    # The SAS adapters of LSI make volumes, too, if their firmware does.
    if controller in _RAID_DRIVERS or model == "Logical Volume":
        return "raid"
    return "ata" if vendor == "ATA" else "scsi"


def read(file: Path) -> str:
    """Return what the file of sysfs says; nothing if there is none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
