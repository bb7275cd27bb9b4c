"""Mounts, and a mount namespace of the lab's own in which they end with its last process."""

import contextlib
import ctypes
import os
import re
import subprocess
import time
from pathlib import Path

from wallab.errors import MachineError

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x00020000
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18


def enter_private_namespace() -> None:
    """Go to a mount namespace of this process and its children alone.

    Whatever is mounted there vanishes with them, also after kill -9. MachineError without rights.
    """
    if _LIBC.unshare(_CLONE_NEWNS) or _LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None):
        reason = os.strerror(ctypes.get_errno())
        raise MachineError(
            f"no private mount namespace ({reason}): simulated drives take root, and in a "
            "container --cap-add SYS_ADMIN"
        )


def mount(device: Path, target: Path, filesystem: str, options: str = "") -> None:
    """Mount the device's file system; MachineError with the kernel's reason."""
    arguments = ["-t", filesystem, *(["-o", options] if options else [])]
    _run(["mount", *arguments, str(device), str(target)])


def kind(point: Path) -> str:
    """Return the file system that is mounted there; nothing if none is."""
    return _entry(point)[2] if _entry(point) else ""


def options(point: Path) -> tuple[str, ...]:
    """Return the options that the file system there is mounted with, as the kernel tells them."""
    return tuple(_entry(point)[3].split(",")) if _entry(point) else ()


def _entry(point: Path) -> list[str]:
    """Return the fields of the line of /proc/self/mounts about the point; the last one counts."""
    found: list[str] = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if _unescape(line.split()[1]) == point:
            found = line.split()
    return found


def _unescape(word: str) -> Path:
    return Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), word))


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


def _mounted() -> list[tuple[str, Path]]:
    """Return what is mounted where, the outermost first."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, point = line.split()[:2]
        unescaped = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
        found.append((source, Path(unescaped)))
    return found


def source(point: Path) -> str:
    """Return what is mounted at the point, such as /dev/loop0; nothing if nothing is."""
    return next((name for name, place in reversed(_mounted()) if place == point), "")


def below(folder: Path) -> list[Path]:
    """Return the mount points at or below the folder, the innermost first.

    Bind mounts count, which Path.is_mount does not see on their own file system.
    """
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point = _unescape(line.split()[1])
        if point == folder or folder in point.parents:
            found.append(point)
    found = [point for _, point in _mounted() if point == folder or folder in point.parents]
    return found[::-1]


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
