"""Mounts, and a mount namespace of the lab's own in which they end with its last process."""

import contextlib
import ctypes
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from wallab.errors import MachineError
from wallab.machine.loop import Attached
from wallab.machine.owned import Owned

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x00020000
_MS_REC = 0x4000
_MS_SLAVE = 1 << 19


def enter_private_namespace() -> None:
    """Go to a mount namespace of this process and its children alone.

    Whatever is mounted there vanishes with them, also after kill -9. What is unmounted outside
    goes here, too, where mounts are shared: else a copy of it would keep its device busy.
    MachineError without rights.
    """
    if _LIBC.unshare(_CLONE_NEWNS) or _LIBC.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None):
        reason = os.strerror(ctypes.get_errno())
        raise MachineError(
            f"no private mount namespace ({reason}): simulated drives take root, and in a "
            "container --cap-add SYS_ADMIN"
        )
    if os.statvfs("/sys").f_flag & os.ST_RDONLY:
        # A container's; what the kernel believes of a loop device's cache is set there.
        _run(["mount", "-o", "remount,bind,rw", "/sys"])


def mount(device: Path, target: Path, filesystem: str, options: str = "") -> None:
    """Mount the device's file system; MachineError with the kernel's reason."""
    arguments = ["-t", filesystem, *(["-o", options] if options else [])]
    _run(["mount", *arguments, str(device), str(target)])


class Mount(msgspec.Struct, frozen=True):
    """A line of /proc/self/mountinfo."""

    point: Path
    device: str
    """major:minor; major 0 is no block device."""
    options: tuple[str, ...]
    """Of the mount; the file system has others."""
    filesystem: str
    source: str
    """Such as /dev/loop0."""
    own_options: tuple[str, ...]
    """Those of the file system."""

    def all_options(self) -> tuple[str, ...]:
        """Return the options of both, as /proc/self/mounts has them."""
        access = "ro" if "ro" in (self.options[0], self.own_options[0]) else "rw"
        return access, *self.options[1:], *self.own_options[1:]


def unescape(word: str) -> str:
    """Return a word of the kernel's tables of mounts as it was before its blanks were escaped."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), word)


def parse(table: str) -> list[Mount]:
    """Read a mountinfo of /proc, the outermost mount first."""
    mounts = []
    for line in table.splitlines():
        fields, _, rest = line.partition(" - ")
        device, _, point, options = fields.split()[2:6]
        filesystem, source, own = rest.split(" ", 2)  # there may be no source
        mounts.append(
            Mount(
                Path(unescape(point)),
                device,
                tuple(options.split(",")),
                filesystem,
                unescape(source),
                tuple(own.split(",")),
            )
        )
    return mounts


def table(file: str | Path = "/proc/self/mountinfo") -> list[Mount]:
    """Return what a process sees mounted, the outermost first."""
    return parse(Path(file).read_text())


def at(point: Path) -> Mount | None:
    """Return what is mounted at the point, as the kernel tells it; None if nothing is."""
    return next((mount for mount in reversed(table()) if mount.point == point), None)


def kind(point: Path) -> str:
    """Return the file system that is mounted there; nothing if none is."""
    mount = at(point)
    return mount.filesystem if mount else ""


def options(point: Path) -> tuple[str, ...]:
    """Return the options that the file system there is mounted with, as the kernel tells them."""
    mount = at(point)
    return mount.all_options() if mount else ()


class Mounted(Owned, frozen=True):
    """The file system of a drive at a point that is not the lab's own.

    Others may mount there, too: what is the drive's is told by its device.
    """

    point: Path
    filesystem: str
    loop: Attached

    def mount(self, options: str = "") -> None:
        """Mount it; MachineError with the kernel's reason."""
        mount(self.loop.device, self.point, self.filesystem, options)

    def device(self) -> str:
        """Return the number of the drive's device, major:minor; nothing if it is another's."""
        if not self.loop.holds():
            return ""
        return (Path("/sys/block") / self.loop.device.name / "dev").read_text().strip()

    def shows(self, mount: Mount, device: str) -> bool:
        """Whether that mount is one of the drive's file system; the device as told by `device`."""
        if mount.filesystem == "btrfs":  # which has a number of its own
            same = self.filesystem == "btrfs" and mount.source == str(self.loop.device)
            return same and device != ""
        return mount.device == device

    def is_on_top(self) -> bool:
        """Whether the file system is what the point shows; MachineError if it is covered."""
        device = self.device()
        here = [mount for mount in table() if mount.point == self.point]
        ours = [mount for mount in here if self.shows(mount, device)]
        if ours and here[-1] is not ours[-1]:
            raise MachineError(
                f"{self.point}: {here[-1].source} ({here[-1].filesystem}) is mounted over the "
                "drive: unmount that first"
            )
        return bool(ours)

    def unmount(self, patience: float = 20.0) -> None:
        """Unmount it, waiting for its last users to go; past the patience (s), detach it lazily.

        MachineError then, or where something else covers it.
        """
        unmount(self.point, patience, self.is_on_top)

    def undo(self) -> str:
        """Unmount it, from under its users if there are any."""
        if not self.is_on_top():
            return ""
        _run(["umount", "--lazy", str(self.point)])
        return f"unmounted {self.point}"


class MountsBelow(Owned, frozen=True):
    """What is mounted in a folder of the lab's own."""

    folder: Path

    def undo(self) -> str:
        """Unmount it, the innermost first."""
        points = below(self.folder)
        for point in points:
            _run(["umount", "--lazy", str(point)])
        return "; ".join(f"unmounted {point}" for point in points)


def kernel_knows(filesystem: str) -> bool:
    """Whether the kernel can mount such a file system, loading a module if there is one."""
    known = re.compile(rf"^\t{re.escape(filesystem)}$", re.MULTILINE)
    if known.search(Path("/proc/filesystems").read_text()):
        return True
    with contextlib.suppress(OSError):
        subprocess.run(["modprobe", filesystem], capture_output=True)
    return bool(known.search(Path("/proc/filesystems").read_text()))


def bind(folder: Path, target: Path) -> None:
    """Show a folder, read-only, at another place.

    That also lets users in who may not pass its parents.
    """
    _run(["mount", "--bind", str(folder), str(target)])
    _run(["mount", "-o", "remount,bind,ro", str(target)])


def below(folder: Path) -> list[Path]:
    """Return the mount points at or below the folder, the innermost first.

    Bind mounts count, which Path.is_mount does not see on their own file system.
    """
    # The kernel's table has no links in its paths.
    real = folder.parent.resolve() / folder.name
    points = [mount.point for mount in table()]
    return [point for point in points if point == real or real in point.parents][::-1]


def unmount(
    target: Path, patience: float = 20.0, is_there: Callable[[], bool] | None = None
) -> None:
    """Unmount, waiting for the last users to go; past the patience (s), detach it lazily."""
    is_there = is_there or (lambda: target in below(target))
    deadline = time.monotonic() + patience
    while is_there():
        result = subprocess.run(["umount", str(target)], capture_output=True, text=True)
        if result.returncode == 0:
            return
        if time.monotonic() > deadline:
            _run(["umount", "--lazy", str(target)])
            raise MachineError(f"{target} was busy for {patience:.0f} s: {result.stderr.strip()}")
        time.sleep(0.02)


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode:
        raise MachineError(f"{' '.join(command)}: {result.stderr.strip()}")
