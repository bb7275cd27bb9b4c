"""Have ready what a virtual machine is made of: the last step of scripts/setup virtual."""

import sys

from wallab.errors import MachineError
from wallab.virtual import kernel, python, qemu, rootfs


def main() -> int:
    """Fetch what is missing; return the exit code."""
    try:
        qemu.find()
        kernel.fetch()
        python.find()
        rootfs.versions()
    except MachineError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
