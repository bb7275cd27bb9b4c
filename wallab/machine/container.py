"""What a container of the lab's image must be given, and what it lacks."""

import contextlib
import os
from pathlib import Path

from wallab import paths

_CAP_SYS_ADMIN = 21
_LOOPS = 8

DEVICES = ("/dev/fuse", "/dev/loop-control", *(f"/dev/loop{n}" for n in range(_LOOPS)))


def image() -> str:
    """Which of the image's targets this is, lab or builder; nothing outside of them."""
    return os.environ.get("WALLAB_IMAGE", "")


def _may_mount() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def _usable(device: str) -> bool:
    """Whether the device opens: a container may see a node that it may not use."""
    with contextlib.suppress(OSError):
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
        return True
    return False


def lacking() -> list[str]:
    """Name the rights that simulated drives take and this container does not have."""
    missing = [] if _may_mount() else ["CAP_SYS_ADMIN"]
    missing += [device for device in DEVICES[:2] if not _usable(device)]
    if not any(_usable(device) for device in DEVICES[2:]):
        missing.append("loop devices")
    return missing


def command() -> str:
    """The exact command that gives a container these rights."""
    name, kept = "wal-lab", ""
    if image() == "builder":
        name, kept = "wal-lab:builder", f"-v wal-lab:{paths.BUILD} --network none "
    devices = " ".join(f"--device {device}" for device in DEVICES)
    return (
        "docker run --rm --cap-add SYS_ADMIN --security-opt apparmor=unconfined "
        f'{devices} -v "$PWD/results:{paths.RESULTS}" {kept}{name}'
    )
