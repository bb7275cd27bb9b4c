#!/usr/bin/env python3
"""What the sandbox costs: a build with and one without, in turn, as a ratio.

usage: .venv/bin/python benchmarks/sandbox_cost.py [SOURCE] [--rounds N] [--warm CCACHE] [--at DIR]

Each build of stock begins from nothing, in a cache and a folder of its own below DIR, which every
user must be able to reach: without the sandbox the build's user has no other way to it. The second
round has the other order. With --warm each begins with a copy of that compiler cache, so that what
the sandbox adds is a larger part of less. The exit code is 1 if the ratio is above the limit.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from wallab.errors import LabError
from wallab.machine import sandbox, scratch
from wallab.servers import buildsystem, source
from wallab.servers.builder import Builder
from wallab.servers.source import Source

LIMIT = 1.05
"""Seconds with ÷ seconds without."""

WAYS = {"bwrap": None, "none": "1"}
"""Kind of sandbox -> what the setting is for it."""


def build(source_tree: Source, system: str, kind: str, at: Path, warm: Path | None) -> float:
    """Build stock from nothing in that kind of sandbox, and return the seconds."""
    os.environ.pop(sandbox.SETTING, None)
    if setting := WAYS[kind]:
        os.environ[sandbox.SETTING] = setting
    with tempfile.TemporaryDirectory(prefix="wal-lab-cost-", dir=at) as home:
        folder = Path(home)
        folder.chmod(0o755)
        os.environ["WALLAB_CACHE"] = str(folder / "cache")
        (folder / "cache").mkdir()
        if warm:
            shutil.copytree(warm, folder / "cache/ccache", symlinks=True)
        maker = Builder(source_tree, buildsystem.choose(system, source_tree), folder / "build")
        begun = time.monotonic()
        (server,) = maker.build({"stock": []})
        seconds = time.monotonic() - begun
        assert server.build.sandbox == kind, f"{server.build.sandbox} instead of {kind}"
        for tree in folder.glob("cache/trees/*/*"):
            scratch.remove(tree)
    return seconds


def measure(wanted: str, system: str, rounds: int, at: Path, warm: Path | None) -> int:
    """Build in turn, print what each took and the ratio; 1 if that is too high."""
    source_tree = source.resolve(wanted)
    seconds: dict[str, list[float]] = {kind: [] for kind in WAYS}
    for number in range(rounds):
        for kind in list(WAYS)[:: -1 if number % 2 else 1]:
            seconds[kind].append(build(source_tree, system, kind, at, warm))
            print(f"{kind:8} {seconds[kind][-1]:8.1f} s", flush=True)
    ratios = [boxed / bare for boxed, bare in zip(*seconds.values(), strict=True)]
    ratio = statistics.median(ratios)
    print(
        f"PostgreSQL {source_tree.version}, {'warm' if warm else 'cold'}, {os.cpu_count()} CPUs: "
        f"{ratio:.3f} × as long in the sandbox ({', '.join(f'{each:.3f}' for each in ratios)}); "
        f"at most {LIMIT}"
    )
    return 1 if ratio > LIMIT else 0


def main() -> int:
    """Read the command line, measure, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", default="18", help="as build-variant's (%(default)s)")
    parser.add_argument("--build-system", default="auto", choices=["auto", "meson", "autoconf"])
    parser.add_argument("--rounds", type=int, default=2, help="builds of each (%(default)s)")
    parser.add_argument("--warm", type=Path, help="a compiler cache to begin with")
    parser.add_argument("--at", type=Path, default=Path("/var/tmp"), help="where (%(default)s)")  # noqa: S108
    given = parser.parse_args()
    try:
        return measure(given.source, given.build_system, given.rounds, given.at, given.warm)
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
