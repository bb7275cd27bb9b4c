"""What a simulated drive takes of this process, and of the machine."""

import os

from wallab.errors import MachineError
from wallab.machine import container


def check() -> None:
    """MachineError unless this process may make simulated drives."""
    if container.image() and (missing := container.lacking()):
        raise MachineError(
            f"simulated drives take rights that this container lacks ({', '.join(missing)}); "
            f"start it with:\n  {container.command()}"
        )
    if os.geteuid() != 0:
        raise MachineError(
            "simulated drives take mounts and loop devices, and so root: run this with sudo, or "
            "as root. PostgreSQL itself then runs as another user."
        )
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise MachineError(
            "simulated drives need FUSE, and there is no usable /dev/fuse: load the kernel's "
            "module (modprobe fuse), or give a container --device /dev/fuse"
        )
