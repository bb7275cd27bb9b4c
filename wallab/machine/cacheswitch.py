"""The write cache of a real disk: read, switched, read back, put back.

A disk has two settings that matter: its own (is there a volatile cache between it and the
platter?) and the kernel's belief, queue/write_cache, by which flushes are sent or not.
"""

import re
import shutil
import subprocess
from pathlib import Path

from wallab.errors import MachineError
from wallab.machine import provision
from wallab.machine.blockdevice import Disk, every_disk, read
from wallab.machine.owned import Owned

PATIENCE = 60
"""Seconds that a tool may take; a disk that spins up takes some of them."""


class CacheState(Owned, frozen=True):
    """The settings of one disk, as they are to be again."""

    identity: str
    name: str
    drive: str
    """on, off, or unknown."""
    kernel: str
    """write back: flushes are sent; write through: they are not."""

    def undo(self) -> str:
        """Put the disk's settings back."""
        return put_back(self)


# Kind of disk -> Debian package, program.
_TOOLS = {"ata": ("hdparm", "hdparm"), "scsi": ("sdparm", "sdparm"), "nvme": ("nvme-cli", "nvme")}

_CONTROLLERS = (
    "is a volume of a RAID controller ({}), which has caches of its own and in its disks: set "
    "them with the maker's tool (storcli, ssacli, arcconf …)"
)
_FIXED = {
    "loop": "is a loop device, which has no cache of its own",
    "virtio": "is the disk of a guest, whose host does not let it switch the cache",
    "other": "is of a kind that the lab cannot switch",
}


def state(disk: Disk) -> CacheState:
    """Read the disk's settings; MachineError where its tool cannot be had."""
    return CacheState(disk.identity, disk.name, _drive_state(disk), _kernel_file(disk)[1])


def set_to(disk: Disk, drive: str, kernel: str) -> bool:
    """Switch the disk's cache (on, off), and the kernel's belief; both are read back.

    What is so already is left alone; returns whether anything was not. MachineError with the
    reason if one did not take.
    """
    changed = False
    if (before := _drive_state(disk)) != drive:
        if reason := fixed(disk):
            raise MachineError(f"{disk.name} {reason}; it is {before}")
        _switch(disk, drive)
        changed = True
        if (after := _drive_state(disk)) != drive:
            raise MachineError(f"{disk.name}: the write cache stays {after}, not {drive}")
    file, believed = _kernel_file(disk)
    if believed != kernel:
        _write(file, kernel)
        if (after := read(file)) != kernel:
            raise MachineError(f"{file} stays “{after}”, not “{kernel}”")
        changed = True
    return changed


def put_back(before: CacheState, root: Path = Path("/")) -> str:
    """Put a disk's settings back; say what was done, if anything. MachineError if that failed."""
    disks = [disk for disk in every_disk(root) if disk.identity == before.identity]
    if not disks:
        raise MachineError(
            f"{before.name} ({before.identity}) is not here, and its write cache is still to be "
            f"put back to {before.drive}: run scripts/drive restore when it is"
        )
    # A disk to which several ways lead has several names, and each has been noted.
    named = [disk for disk in disks if disk.name == before.name]
    changed = []
    for disk in named or disks:
        # What could not be read was not switched either.
        drive = before.drive if before.drive != "unknown" else _drive_state(disk)
        if set_to(disk, drive, before.kernel):
            changed.append(f"put the write cache of {disk.name} back: {drive}, {before.kernel}")
    return "; ".join(changed)


def fixed(disk: Disk) -> str:
    """Say why the disk's own cache cannot be switched; nothing if it may be tried."""
    if disk.kind == "raid":
        return _CONTROLLERS.format(disk.controller)
    # Root may open what the kernel lets nobody write to: the mode tells.
    file = disk.sysfs / "cache_type"
    if disk.kind == "virtio" and file.exists() and file.stat().st_mode & 0o200:
        return ""
    return _FIXED.get(disk.kind, "")


def _kernel_file(disk: Disk) -> tuple[Path, str]:
    file = disk.sysfs / "queue/write_cache"
    return file, read(file)


def _write(file: Path, value: str) -> None:
    try:
        file.write_text(value)
    except OSError as error:
        raise MachineError(f"{file}: “{value}”: {error.strerror}") from None


def _drive_state(disk: Disk) -> str:
    """Ask the disk; where that is not possible, its driver: on, off, or unknown."""
    if disk.kind in _TOOLS:
        node = f"/dev/{disk.name}"
        if disk.kind == "ata":
            bit = re.search(r"write-caching =\s+([01])", _tool(disk, "-W", node))
        elif disk.kind == "scsi":
            # It exits with 5 even where it works.
            bit = re.search(r"^WCE\s+([01])", _tool(disk, "--get=WCE", node), re.MULTILINE)
        else:
            words = _tool(disk, "get-feature", _controllers(disk)[0], "-f", "6")
            bit = re.search(r"Current value:\s*(?:0x)?0*([01])$", words, re.MULTILINE)
        if bit:
            return "on" if bit[1] == "1" else "off"
    # What has no such page, or nobody to ask: what the driver found.
    if disk.kind == "virtio":
        believed = read(disk.sysfs / "cache_type")
    elif disk.kind == "loop":
        believed = "write back"  # what is written lies in the page cache, or below
    elif disk.kind in ("raid", "other"):
        return "unknown"
    else:
        believed = next(map(read, disk.sysfs.glob("device/scsi_disk/*/cache_type")), "")
        believed = believed or read(disk.sysfs / "queue/write_cache")
    if not believed:
        return "unknown"
    return "on" if believed.startswith("write back") else "off"


def _switch(disk: Disk, drive: str) -> None:
    node, on = f"/dev/{disk.name}", drive == "on"
    if disk.kind == "ata":
        _tool(disk, f"-W{int(on)}", node)
    elif disk.kind == "scsi":
        _tool(disk, "--set=WCE" if on else "--clear=WCE", node)
        _write(disk.sysfs / "device/rescan", "1")  # the kernel does not see it by itself
    elif disk.kind == "nvme":
        for controller in _controllers(disk):
            _tool(disk, "set-feature", controller, "-f", "6", "-v", str(int(on)))
    else:
        _write(disk.sysfs / "cache_type", "write back" if on else "write through")


def _controllers(disk: Disk) -> list[str]:
    """Return the nodes of an NVMe namespace's controllers, several where there are several paths.

    The cache is theirs: for a namespace the switch is refused (“not namespace specific”).
    """
    above = (disk.sysfs / "device").resolve()
    folders = [above, *sorted(above.glob("nvme*"))]
    nodes = [f"/dev/{folder.name}" for folder in folders if re.fullmatch(r"nvme\d+", folder.name)]
    if not nodes:
        raise MachineError(f"{disk.name}: no NVMe controller is known for it")
    return nodes


def _tool(disk: Disk, *arguments: str) -> str:
    """Run the tool for the disk's kind, whose exit code means little; return its words."""
    package, program = _TOOLS[disk.kind]
    try:
        if not shutil.which(program):
            provision.install({package: program})
        result = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
        )
    except (provision.SetupError, OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{disk.name}: {program}: {error}") from None
    return result.stdout
