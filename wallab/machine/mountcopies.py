"""A drive's file system in other mount namespaces, which copied it as they began.

They are entered by a process of their own: it executes nothing there, for the programs and the
paths of another namespace, such as a container's, are whatever its owner likes.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from wallab import paths
from wallab.files import jsonfile
from wallab.machine import mounts
from wallab.machine.mounts import Mounted

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x00020000
_UMOUNT_NOFOLLOW = 8


def unmount(drive: Mounted) -> dict[int, str]:
    """Unmount the drive's file system everywhere but here.

    Returns where that was refused, by a process each -> why.
    """
    refused: dict[int, str] = {}
    seen = {Path("/proc/self/ns/mnt").readlink()}
    device = drive.device()
    for home in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just gone
            namespace = (home / "ns" / "mnt").readlink()
            entries = mounts.table(f"/proc/{home.name}/mountinfo")
            # One in a chroot may not see it; another of its namespace does.
            if namespace in seen or not any(drive.shows(mount, device) for mount in entries):
                continue
            seen.add(namespace)
            result = subprocess.run(
                [sys.executable, "-m", "wallab.machine.mountcopies", home / "ns" / "mnt",
                 jsonfile.dumps(drive)],
                capture_output=True,
                text=True,
                cwd=paths.LAB,
            )  # fmt: skip
            if result.returncode:
                refused[int(home.name)] = result.stderr.strip()
    return refused


def main(namespace: str, noted: str) -> NoReturn:
    """Unmount the drive's file system in that namespace; exit with 1 and the reason."""
    drive = jsonfile.loads(noted, Mounted)
    device = drive.device()
    process = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    code = 1
    # From here on nothing may be imported: it would be the namespace's, and run as root.
    try:
        with open(namespace) as target:  # noqa: PTH123 - see above
            _call(_LIBC.setns(target.fileno(), _CLONE_NEWNS))
        # By the lab's own /proc, with the paths that this process, in no chroot, now sees.
        with os.fdopen(os.open("self/mountinfo", os.O_RDONLY, dir_fd=process)) as table:
            entries = mounts.parse(table.read())
        for mount in reversed(entries):
            if drive.shows(mount, device):
                _call(_LIBC.umount2(bytes(mount.point), _UMOUNT_NOFOLLOW), mount.point)
        code = 0
    except OSError as error:
        os.write(2, f"{error.filename}: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def _call(result: int, about: Path | None = None) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about)


if __name__ == "__main__":
    main(*sys.argv[1:])
