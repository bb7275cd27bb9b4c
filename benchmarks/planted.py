#!/usr/bin/env python3
"""Faults that the lab once had, planted again one at a time: a test must fail with each.

usage: .venv/bin/python benchmarks/planted.py [--group GROUP]… [--match WORDS] [--write DIR]

benchmarks/faults.toml has them. They are planted in a copy of the checkout, never in the checkout;
there the tests that are named run, first as they should, then with the fault. Told is what each
came to. With --write a table of each group goes to DIR, for docs/safety.md. The exit code is 1 if a
test does not fail with its fault, or fails without, or if a fault has no place any more. Tests that
the machine skips, as most without root, show nothing: that counts as a failure, too.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks import copying
from wallab import paths
from wallab.files.strict import read_toml
from wallab.progress import Work

FAULTS = paths.LAB / "benchmarks" / "faults.toml"

PATIENCE = 1800
"""Seconds that the tests of one fault may take."""


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done to the file of a fault besides."""

    right: str
    wrong: str


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that there was, and the tests that each fail with it."""

    was: str
    """What happened, in words."""
    file: str
    right: str
    """Text that stands once in the file."""
    wrong: str
    tests: tuple[str, ...]
    """File::function."""
    also: Edit | None = None


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """benchmarks/faults.toml, in groups."""

    finding: tuple[Fault, ...]
    """What a patch, its server, or another user could do."""
    honesty: tuple[Fault, ...]
    """What results, or tests, did not tell."""
    mutant: tuple[Fault, ...]
    """Mutants that survived all tests."""
    traceback: tuple[Fault, ...]
    """Inputs that ended in a traceback."""


GROUPS = Faults.__struct_fields__

Outcome = Literal["found", "not found", "no place", "skipped"]


def read() -> Faults:
    """Return all faults; LabError where the file is wrong."""
    return read_toml(FAULTS, Faults)


def planted(fault: Fault, text: str) -> str | None:
    """Return the file with the fault in it; None if its places are not there once each."""
    for edit in (Edit(fault.right, fault.wrong), *([fault.also] if fault.also else [])):
        if text.count(edit.right) != 1:
            return None
        text = text.replace(edit.right, edit.wrong)
    return text


def outcome(fault: Fault, test: str, lab: Path) -> Outcome:
    """Plant the fault in that copy, run the test, and take the fault out again."""
    file = lab / fault.file
    right = file.read_text()
    if (wrong := planted(fault, right)) is None:
        return "no place"
    file.write_text(wrong)
    try:
        code, _ = run(["--exitfirst", test], lab)
    finally:
        file.write_text(right)
    return {1: "found", 0: "not found"}.get(code, "skipped")  # type: ignore[return-value]


def run(tests: list[str], lab: Path) -> tuple[int, str]:
    """Run tests in a copy; return pytest's exit code, 5 where all were skipped, and its output."""
    # No bytecode: it is told from the source's by its time, in seconds, and its size.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=600"]
    done = subprocess.run(
        [*pytest, *tests], cwd=lab, env=environment, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    code = done.returncode
    if code == 0 and " passed" not in done.stdout.splitlines()[-1]:
        code = 5
    return code, done.stdout + done.stderr


def table(faults: tuple[Fault, ...]) -> str:
    """Return the faults and their tests as a table in Markdown."""
    lines = ["| what was wrong | the test that fails with it |", "|---|---|"]
    for fault in faults:
        names = ", ".join(f"`{test.removeprefix('tests/')}`" for test in fault.tests)
        lines.append(f"| {fault.was} | {names} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Read the command line, plant, print; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group", action="append", choices=GROUPS, help="of faults (all)")
    parser.add_argument("--match", default="", help="words of those to be planted")
    parser.add_argument("--write", type=Path, metavar="DIR", help="where the tables go")
    given = parser.parse_args()
    faults = read()
    chosen = [
        fault
        for group in given.group or GROUPS
        for fault in getattr(faults, group)
        if given.match in fault.was
    ]
    with tempfile.TemporaryDirectory(prefix="wal-lab-planted-", dir="/var/tmp") as home:
        lab = copying.checkout(Path(home))
        failed = judge(chosen, lab)
    print(f"{len(chosen)} faults planted, {failed} not found")
    if given.write and not failed and not given.match:
        given.write.mkdir(parents=True, exist_ok=True)
        for group in given.group or GROUPS:
            (given.write / f"{group}.md").write_text(table(getattr(faults, group)))
    return 1 if failed else 0


def judge(chosen: list[Fault], lab: Path) -> int:
    """Plant each in the copy, and print what it came to; return how many were not found."""
    tests = list(dict.fromkeys(test for fault in chosen for test in fault.tests))
    with Work("planted") as work:
        work.update(0, "without a fault")
        code, words = run(tests, lab)
        if code:
            print(words)
            print("the tests fail, or are skipped, without a fault")
            return len(chosen)
        failed = 0
        for number, fault in enumerate(chosen):
            work.update(number / len(chosen), fault.was)
            outcomes = {test: outcome(fault, test, lab) for test in fault.tests}
            failed += set(outcomes.values()) != {"found"}
            for test, came in outcomes.items():
                print(f"{came}: {fault.was} ({fault.file}, {test})", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
