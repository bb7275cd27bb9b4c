"""Real drives: a directory as it is, and one whose device's write cache is switched.

All work happens in a folder of the lab's own below the directory that the user named.
"""

import itertools
import os
from pathlib import Path

from wallab.drives.drive import Drive
from wallab.errors import LabError, MachineError
from wallab.machine import blockdevice, cacheswitch, process, scratch
from wallab.machine.blockdevice import Disk, Stack
from wallab.machine.ledger import Ledger
from wallab.record.drivereading import DriveReading
from wallab.record.writecache import WriteCache, as_read_back

# Fields of /sys/block/NAME/stat (Documentation/block/stat.rst), as the simulated drive calls them.
_COUNTERS = {
    "reads": 0,
    "sectors_read": 2,
    "writes": 4,
    "sectors_written": 6,
    "flushes": 15,
}


def describe(directory: Path, root: Path = Path("/")) -> dict[str, str]:
    """Say what is under the directory: mount, devices, disks and what can move their numbers."""
    mount = blockdevice.mount_under(_checked(directory), root)
    stack = blockdevice.stack_under(mount, root)
    conditions = {
        "directory": str(directory),
        "filesystem": mount.filesystem,
        "options": ",".join(mount.options),
        "through": " ".join(folder.name for folder in stack.upper),
    }
    for disk in stack.disks:
        queue = disk.sysfs / "queue"
        words = {
            "kind": disk.kind,
            "model": disk.model,
            "controller": disk.controller,
            "firmware": blockdevice.read(disk.sysfs / "device/rev")
            or blockdevice.read(disk.sysfs / "device/firmware_rev"),
            "rotational": blockdevice.read(queue / "rotational"),
            "scheduler": blockdevice.read(queue / "scheduler"),
            "sectors": blockdevice.read(disk.sysfs / "size"),
        }
        conditions |= {f"{disk.name}.{key}": value for key, value in words.items() if value}
    return conditions


def _checked(directory: Path) -> Path:
    """Return the directory without links; LabError if there is none."""
    try:
        real = directory.resolve(strict=True)
    except OSError as error:
        raise LabError(f"{directory}: {error.strerror}; name a directory on the drive") from None
    if not real.is_dir():
        raise LabError(f"{directory}: not a directory; name one on the drive")
    return real


class DirectoryDrive(Drive):
    """A folder on whatever drive the directory is on, whose write cache is as it is."""

    def __init__(self, name: str, directory: Path, ledger: Ledger, root: Path = Path("/")) -> None:
        """Make the folder; the ledger, a lasting one, owns it. LabError if that is not possible."""
        self.name = name
        self.directory = _checked(directory)
        self._stack: Stack = blockdevice.stack_under(
            blockdevice.mount_under(self.directory, root), root
        )
        self._zero: dict[str, int] = {}
        self._ledger = ledger
        try:
            self._scratch = ledger.make(
                scratch.named(self.directory, f"wal-lab-{name}-{os.getpid()}")
            )
            self.folder = self._scratch.path
            self.mount_point = self.folder / "files"
            self._kept = self.folder / "kept"
            self.mount_point.mkdir(mode=0o700)
        except OSError as error:
            raise LabError(f"{error.filename}: {error.strerror}") from None
        self.mount()
        if not self._reachable():
            raise LabError(
                f"{self.directory}: the user {process.server_user()}, whom PostgreSQL runs as, "
                "gets no access: let others pass (chmod o+x) the directories above"
            )

    def _reachable(self) -> bool:
        with process.started(["test", "-w", self.mount_point], as_server=True) as child:
            return child.wait() == 0

    def unavailable(self, state: WriteCache) -> str:
        """Say why the write cache cannot have this state; nothing if it can."""
        return "" if state == "as-is" else "a directory's write cache is as it is"

    def set_write_cache(self, state: WriteCache) -> None:
        """Leave the write cache alone; MachineError if more is asked."""
        if reason := self.unavailable(state):
            raise MachineError(f"{self.directory}: {reason}")

    def write_cache(self) -> dict[str, str]:
        """Return what the table expects of a drive as it is."""
        return as_read_back("as-is")

    def timing(self, on: bool) -> None:
        """Do nothing: a real drive always takes its time."""

    def mount(self) -> None:
        """Give the files to the user that servers run as."""
        process.own(self.mount_point)

    def unmount(self) -> None:
        """Do nothing: the files stay where they are."""

    def snapshot(self) -> None:
        """Keep a copy of the files."""
        if self._kept.exists():
            scratch.remove(self._kept)
        _copy(self.mount_point, self._kept)

    def restore(self) -> None:
        """Replace the files by a copy of the kept ones, and wait until it is on the disk."""
        scratch.remove(self.mount_point)
        _copy(self._kept, self.mount_point)

    def forget(self) -> None:
        """Nothing: it takes no memory, and the next restore removes the files."""

    def reset(self) -> None:
        """Count from zero."""
        self._zero = self._count()

    def reading(self) -> DriveReading:
        """Return what the kernel counted for the disks, whoever asked; nothing without a disk."""
        now = self._count()
        return DriveReading({name: now[name] - self._zero.get(name, 0) for name in now}, {})

    def _count(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for disk in self._stack.disks:
            fields = blockdevice.read(disk.sysfs / "stat").split()
            for name, place in _COUNTERS.items():
                if place < len(fields):
                    total[name] = total.get(name, 0) + int(fields[place])
        return total

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        self._ledger.undo(self._scratch)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder of the server's user, sharing blocks where the file system can; then sync.

    That user copies it: where a link was put in a folder's place, it leads root nowhere.
    """
    # The copy is made elsewhere first: there is never half a folder under the name.
    partial = target.with_name(f"{target.name}.partial")
    partial.mkdir(mode=0o700)
    process.own(partial)
    try:
        process.must_run(["cp", "-a", "--reflink=auto", "--", f"{source}/.", partial], "cp")
        process.must_run(["sync", "--file-system", partial], "sync")
    except LabError as error:
        raise MachineError(f"{source}: {error}") from None
    partial.rename(target)


class DeviceDrive(DirectoryDrive):
    """A folder on a real drive whose write cache is switched, and put back by the ledger."""

    def __init__(
        self,
        name: str,
        directory: Path,
        ledger: Ledger,
        root: Path = Path("/"),
        *,
        root_device_too: bool = False,
    ) -> None:
        """Find the disks under the directory, note how they are, and make the folder.

        MachineError if there are none, or if they hold the running system and that is not allowed.
        """
        mount = blockdevice.mount_under(_checked(directory), root)
        self.disks: tuple[Disk, ...] = blockdevice.stack_under(mount, root).disks
        if not self.disks:
            raise MachineError(
                f"{directory} is on {mount.filesystem} ({mount.source}), and not on a block "
                "device: its write cache cannot be switched; use --drive directory"
            )
        system = blockdevice.stack_under(blockdevice.mount_under(Path("/"), root), root).disks
        shared = [disk.name for disk in self.disks if disk in system]
        if shared and not root_device_too:
            raise MachineError(
                f"{directory} is on {', '.join(shared)}, which holds the running system; its "
                "write cache is switched only with --root-device-too"
            )
        if not os.access(self.disks[0].sysfs / "queue/write_cache", os.W_OK):
            raise MachineError(
                f"{self.disks[0].sysfs}/queue/write_cache cannot be written: switching a write "
                "cache takes root and, in a container, --privileged"
            )
        super().__init__(name, directory, ledger, root)
        for disk in self.disks:
            ledger.add_cache(cacheswitch.state(disk))
        self._reasons: dict[WriteCache, str] = {}

    def unavailable(self, state: WriteCache) -> str:
        """Say why the write cache cannot have this state; nothing if it can: it is tried."""
        if state not in self._reasons:
            try:
                self.set_write_cache(state)
            except MachineError as error:
                self._reasons[state] = str(error)
            else:
                self._reasons[state] = ""
        return self._reasons[state]

    def set_write_cache(self, state: WriteCache) -> None:
        """Switch every disk's cache and the kernel's belief; MachineError if one did not take."""
        wanted = as_read_back(state)
        if wanted["drive"] not in ("on", "off"):
            raise MachineError(f"a real drive cannot be switched to “{state}”")
        for disk in self.disks:
            cacheswitch.set_to(disk, wanted["drive"], wanted["kernel"])
        if (states := self.write_cache()) != wanted:
            raise MachineError(f"the write cache under {self.directory} stays {states}")

    def write_cache(self) -> dict[str, str]:
        """Read back the disks' caches and the kernel's belief; several values if they differ."""
        states = [cacheswitch.state(disk) for disk in self.disks]
        kernel = {state.kernel for state in states}
        if kernel == {"write back"}:
            # A device made of disks may have been made when they had no cache: it sends no flush.
            upper = (blockdevice.read(folder / "queue/write_cache") for folder in self._stack.upper)
            kernel |= set(filter(None, upper))
        return {
            "drive": ", ".join(sorted({state.drive for state in states})),
            "kernel": ", ".join(sorted(kernel)),
        }


def check_apart(drives: dict[DeviceDrive, WriteCache | None]) -> None:
    """MachineError if drives with write caches of their own share a disk; None: the axis's."""
    for (drive, cache), (other, other_cache) in itertools.combinations(drives.items(), 2):
        shared = {disk.name for disk in drive.disks} & {disk.name for disk in other.disks}
        if shared and cache != other_cache:
            raise MachineError(
                f"{drive.directory} and {other.directory} are both on {', '.join(sorted(shared))}, "
                "which has but one write cache: name another drive, or one directory for both"
            )
