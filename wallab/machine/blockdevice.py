"""The block devices under a directory, found through partitions, LVM, md and dm.

All is read from /proc and /sys below a root, which tests replace.
"""

import re
from pathlib import Path
from typing import Literal

import msgspec

from wallab.errors import MachineError
from wallab.machine.mounts import unescape

Kind = Literal["ata", "scsi", "nvme", "virtio", "loop", "raid", "other"]

# Drivers whose disks are volumes of a controller with a cache of its own.
_RAID_DRIVERS = (
    "3w-9xxx", "3w-sas", "aacraid", "arcmsr", "cciss", "gdth", "hpsa", "ips", "megaraid_sas",
    "mpi3mr", "smartpqi",
)  # fmt: skip


class Mount(msgspec.Struct, frozen=True):
    """A line of /proc/self/mountinfo."""

    point: Path
    device: str
    """major:minor; major 0 is no block device."""
    filesystem: str
    source: str
    options: str


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
    found: Mount | None = None
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        device, _, point, options = fields.split()[2:6]
        filesystem, source = rest.split()[:2]
        mount = Mount(Path(unescape(point)), device, filesystem, unescape(source), options)
        inside = mount.point == directory or mount.point in directory.parents
        # Of two on the same point the later one covers the earlier.
        if inside and (found is None or len(mount.point.parts) >= len(found.point.parts)):
            found = mount
    if found is None:
        raise MachineError(f"{directory}: no mount is known that it is on")
    return found


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
        names = sorted(one.name for one in volume.iterdir())
        if name in names:
            return [(root / "sys/class/block" / one).resolve() for one in names]
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
    identities = ("device/wwid", "wwid", "serial", "device/serial", "loop/backing_file")
    return Disk(
        name=name,
        kind=_kind(folder, vendor, model, controller),
        sysfs=folder,
        # A virtio disk has a number for a vendor.
        model=model if vendor in ("", "ATA") or vendor.startswith("0x") else f"{vendor} {model}",
        controller=controller,
        identity=next((found for one in identities if (found := read(folder / one))), name),
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
