"""Mounts, and a mount namespace of the lab's own in which they end with its last process."""

import contextlib
import ctypes
import os
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from wallab.errors import MachineError

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


class Mount(NamedTuple):
    """A line of /proc/self/mounts."""

    source: str
    """Such as /dev/loop0."""
    point: Path
    filesystem: str
    options: tuple[str, ...]


def unescape(word: str) -> str:
    """Return a word of the kernel's tables of mounts as it was before its blanks were escaped."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), word)


def _every(process: int | str = "self") -> list[Mount]:
    """Return what is mounted in the namespace of a process, the outermost first."""
    found = []
    for line in Path(f"/proc/{process}/mounts").read_text().splitlines():
        source, point, filesystem, options = line.split()[:4]
        found.append(Mount(source, Path(unescape(point)), filesystem, tuple(options.split(","))))
    return found


def at(point: Path) -> Mount | None:
    """Return what is mounted at the point, as the kernel tells it; None if nothing is."""
    return next((one for one in reversed(_every()) if one.point == point), None)


def kind(point: Path) -> str:
    """Return the file system that is mounted there; nothing if none is."""
    found = at(point)
    return found.filesystem if found else ""


def options(point: Path) -> tuple[str, ...]:
    """Return the options that the file system there is mounted with, as the kernel tells them."""
    found = at(point)
    return found.options if found else ()


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
    found = [one.point for one in _every()]
    return [point for point in found if point == folder or folder in point.parents][::-1]


def unmount_copies(device: str) -> dict[int, str]:
    """Unmount the device's file system in other mount namespaces, which copied it as they began.

    Returns where that was refused, by a process each -> what umount said.
    """
    own = Path("/proc/self/ns/mnt").readlink()
    refused: dict[int, str] = {}
    seen = {own}
    for home in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just gone
            namespace = (home / "ns" / "mnt").readlink()
            if namespace in seen:
                continue
            seen.add(namespace)
            for one in reversed(_every(home.name)):
                if one.source == device:
                    command = ["nsenter", f"--mount={home}/ns/mnt", "umount", str(one.point)]
                    result = subprocess.run(command, capture_output=True, text=True)
                    if result.returncode:
                        refused[int(home.name)] = result.stderr.strip()
    return refused


def unmount(target: Path, patience: float = 20.0) -> None:
    """Unmount, waiting for the last users to go; past the patience (s), detach it lazily."""
    deadline = time.monotonic() + patience
    while target in below(target):
        result = subprocess.run(["umount", str(target)], capture_output=True, text=True)
        if result.returncode == 0:
            return
        if time.monotonic() > deadline:
            _run(["umount", "--lazy", str(target)])
            raise MachineError(f"{target} was busy for {patience:.0f} s: {result.stderr.strip()}")
        time.sleep(0.02)


def forget(target: Path) -> None:
    """Detach what is mounted there, if anything is, without waiting for its users."""
    while target in below(target):
        _run(["umount", "--lazy", str(target)])


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode:
        raise MachineError(f"{' '.join(command)}: {result.stderr.strip()}")
