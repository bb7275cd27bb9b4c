#!/usr/bin/env python3
"""What variants cost to build, as ratios to one cold stock build in the same run.

usage: .venv/bin/python benchmarks/build_cost.py [SOURCE] [--build-system NAME] [--twice]

Builds in a cache and a build folder of its own below $TMPDIR, from nothing: stock first, then the
other variants, then all with nothing changed, then all after an edit of the code in one patch.
With --twice all of it once more from nothing, and compares what was installed; the exit code is 1
if that differs in more than when it was built and how long that took.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import buildcost
from wallab.errors import LabError
from wallab.record import series
from wallab.servers import buildsystem, source
from wallab.servers.builder import Builder
from wallab.servers.patches import patches_of


def measure(wanted: str, system: str, *, twice: bool) -> int:
    """Build, and print seconds and ratios; 1 if two builds of the same differ."""
    tree = source.resolve(wanted)
    with tempfile.TemporaryDirectory(prefix="wallab-build-cost-") as home:
        cache = Path(home) / "cache"
        os.environ["WALLAB_CACHE"] = str(cache)
        catalog = series.read()
        variants = {name: patches_of(catalog, name, tree) for name in catalog.variant}
        builder = Builder(tree, buildsystem.choose(system, tree), Path(home) / "build")
        forget = (lambda: shutil.rmtree(cache)) if twice else None
        cost = buildcost.measure(builder, variants, Path(home), forget)
    print(f"PostgreSQL {tree.version}, {builder.system.name}, {os.cpu_count()} CPUs")
    print(buildcost.text(cost))
    return 1 if any((cost.differing or {}).values()) else 0


def main() -> int:
    """Read the command line, measure, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", default="18", help="as build-variant's (%(default)s)")
    parser.add_argument("--build-system", default="auto", choices=["auto", "meson", "autoconf"])
    parser.add_argument("--twice", action="store_true", help="build all twice, and compare")
    arguments = parser.parse_args()
    try:
        return measure(arguments.source, arguments.build_system, twice=arguments.twice)
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
