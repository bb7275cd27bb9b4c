#!/usr/bin/env python3
"""What variants cost to build, as ratios to one cold stock build in the same run.

usage: .venv/bin/python benchmarks/build_cost.py [SOURCE]

Builds in a cache and a build folder of its own below $TMPDIR, from nothing: stock first, then the
other variants, then all with nothing changed, then all after a remark in one patch.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from wallab import builder, buildsystem, series, source
from wallab.builder import Builder
from wallab.series import Patch


def main() -> int:
    """Print the seconds and ratios."""
    found = source.resolve(sys.argv[1] if len(sys.argv) > 1 else "18")
    with tempfile.TemporaryDirectory(prefix="wallab-build-cost-") as home:
        os.environ["WALLAB_CACHE"] = f"{home}/cache"
        catalog = series.read()
        variants = {name: series.patches_of(catalog, name, found) for name in catalog.variant}
        one = Builder(found, buildsystem.choose("auto", found), Path(home) / "build")
        times: dict[str, float] = {}

        def timed(what: str, wanted: dict[str, list[Patch]]) -> list[builder.Server]:
            begun = time.monotonic()
            servers = one.build(wanted)
            times[what] = time.monotonic() - begun
            return servers

        timed("one cold stock build", {"stock": variants["stock"]})
        timed("the other variants", variants)
        timed("nothing changed", variants)
        touched = Path(home) / "direct-io.patch"
        touched.write_bytes(b"A remark.\n" + variants["direct-io"][1].file.read_bytes())
        changed = {
            name: [Patch(p.name, touched) if p.name == "direct-io" else p for p in patches]
            for name, patches in variants.items()
        }
        rebuilt = [s.build.variant for s in timed("one patch touched", changed) if s.fresh]
    stock = times["one cold stock build"]
    print(f"PostgreSQL {found.version}, {one.system.name}, {os.cpu_count()} CPUs")
    for what, seconds in times.items():
        print(f"{what:24} {seconds:8.1f} s  {seconds / stock:6.3f}")
    total = stock + times["the other variants"]
    print(f"{f'all {len(variants)} variants':24} {total:8.1f} s  {total / stock:6.3f}")
    print(f"rebuilt after touching direct-io.patch: {', '.join(rebuilt)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
