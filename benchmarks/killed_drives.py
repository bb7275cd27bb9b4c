#!/usr/bin/env python3
"""Kill scripts/drive up and down at random moments; nothing may stay after the next command.

usage: .venv/bin/python benchmarks/killed_drives.py [--count N] [--seed N]
"""

import sys

from benchmarks import killing
from wallab.machine import mounts

if __name__ == "__main__":
    # Another lab on the machine that makes its namespace meanwhile would keep copies of the mounts.
    mounts.enter_private_namespace()
    sys.exit(killing.command_line(__doc__ or "", 200, killing.drives))
