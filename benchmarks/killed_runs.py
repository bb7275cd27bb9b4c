#!/usr/bin/env python3
"""Kill -9 smoke runs at random moments and resume them; no sample may be lost or doubled.

usage: .venv/bin/python benchmarks/killed_runs.py [--count N] [--seed N]
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks import killing
from wallab.progress import Work


def kill_runs(count: int, seed: int, work: Work) -> Counter[str]:
    """Kill the thread's smoke run, and another when it has ended, in a results folder of theirs."""
    with tempfile.TemporaryDirectory(prefix="wallab-killed-") as home:
        what = ["thread", "--preset", "smoke"]
        return killing.runs(count, seed, what, [], Path(home), work)


if __name__ == "__main__":
    sys.exit(killing.command_line(__doc__ or "", 20, kill_runs))
