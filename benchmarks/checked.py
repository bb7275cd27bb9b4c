#!/usr/bin/env python3
"""Print the table of all checks that are found in build/checks, as Markdown.

usage: .venv/bin/python benchmarks/checked.py

A check is made by scripts/build-variant VARIANT --check. There is a line for each server, with the
newest results of each suite; those of an earlier build of the variant do not count.
“took” adds up the checks that results come from.
"""

import re
import sys
from collections.abc import Iterator

from wallab.duration import duration
from wallab.record import series
from wallab.servers import checkresult, suite
from wallab.servers.checkresult import Check
from wallab.servers.suite import Result

HEADINGS = ("PostgreSQL", "built by", "variant", *suite.FOLDERS, "methods", "failed",
            "skipped", "took")  # fmt: skip


def ran(tests: list[Result]) -> str:
    """How many of the tests passed of those that ran; – if none were tried."""
    run = [test for test in tests if test.outcome != "skipped"]
    passed = [test for test in run if test.outcome == "passed"]
    return f"{len(passed)}/{len(run)}" if tests else "–"


def row(check: Check) -> Iterator[str]:
    """The cells of a check."""
    yield check.version
    yield check.build_system
    yield check.variant
    for name in suite.FOLDERS:
        yield ran([test for test in check.tests if test.suite == name])
    with_methods = [test for test in check.tests if test.suite == suite.METHODS]
    yield ran(with_methods)
    yield str(len(check.failed))
    yield str(sum(test.outcome == "skipped" for test in check.tests))
    yield duration(check.took)


def main() -> int:
    """Print the table; 1 if there is no check."""
    checks = checkresult.load_all()
    if not checks:
        print("no checks: scripts/build-variant VARIANT --check makes one", file=sys.stderr)
        return 1
    order = series.names(series.read())

    def place(check: Check) -> tuple[list[int], str, int]:
        version = [-int(number) for number in re.findall(r"\d+", check.version)]
        known = check.variant in order
        return version, check.build_system, order.index(check.variant) if known else len(order)

    print(f"| {' | '.join(HEADINGS)} |")
    print(f"|---|---|---|{'---:|' * (len(HEADINGS) - 3)}")
    for check in sorted(checks, key=place):
        print(f"| {' | '.join(row(check))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
