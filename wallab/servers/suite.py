"""The suites of tests inside a PostgreSQL tree, as jobs to run, and what their output tells.

A suite is a folder of the tree. Its tests are run by the tree's own means: pg_regress with the
tree's schedule, or the Perl scripts in t/, with the environment that both build systems give them.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from wallab.errors import LabError
from wallab.servers import patching
from wallab.servers import source as sources
from wallab.servers.patches import Patch
from wallab.servers.source import Source

FOLDERS = {
    "regress": "src/test/regress",
    "isolation": "src/test/isolation",
    "recovery": "src/test/recovery",
    "misc": "src/test/modules/test_misc",
    "pg_test_fsync": "src/bin/pg_test_fsync",
    "pg_waldump": "src/bin/pg_waldump",
}
"""Suite -> its folder; those that a check runs unless it is told otherwise."""

METHODS = "methods"
"""The suite of the WAL's own tests, once with each wal_sync_method of the variant."""

WAL_TESTS = (
    "stream_rep",
    "archiving",
    "timeline_switch",
    "twophase",
    "wal_writes",
    "crash_restart",
    "unlogged_reinit",
    "promotion_pages",
    "wal_optimize",
    "archive_status",
    "overwrite_contrecord",
    "end_of_wal",
    "no_contrecord_switch",
)
"""Tests of src/test/recovery, less their numbers, whose subject is what is in the WAL's files."""

PROGRAMS = (
    "src/test/regress/pg_regress",
    "src/test/regress/regress.so",
    "src/test/isolation/pg_isolation_regress",
    "src/test/isolation/isolationtester",
    # Of the triggers' tests, up to 17.
    "contrib/spi/autoinc.so",
    "contrib/spi/refint.so",
)
"""What the tests need from the build folder beside the installed server."""

SCHEDULES = {
    "src/test/regress": ("pg_regress", "parallel_schedule"),
    "src/test/isolation": ("pg_isolation_regress", "isolation_schedule"),
}
"""Folder -> the program that runs its schedule."""

TYPICAL = {"src/test/regress": 0.2, "src/test/isolation": 0.7}
"""Seconds that a test of a schedule takes, roughly; for the time left alone."""
TYPICAL_SCRIPT = 4.0
TYPICAL_LONG = {"stream_regress": 60.0}


class Result(msgspec.Struct, frozen=True):
    """One test of a tree and how it ended."""

    suite: str
    name: str
    method: str | None
    """The wal_sync_method that all its servers had; None for the tree's own choice."""
    outcome: Literal["passed", "failed", "skipped"]
    seconds: float
    points: int = 1
    """Test points that it made."""
    skipped: tuple[str, ...] = ()
    """Why it, or points of it, were skipped."""


class Job(msgspec.Struct, frozen=True):
    """One process of a check: a script, or a whole schedule."""

    suite: str
    folder: str
    """Relative to the tree; it runs there."""
    script: str | None
    """In the folder; None for the schedule."""
    method: str | None
    tests: int
    typical: float
    """Seconds, roughly."""

    @property
    def name(self) -> str:
        """The script's name or the suite's, with the method: what its log is called."""
        stem = Path(self.script).stem if self.script else self.suite
        return f"{stem}.{self.method}" if self.method else stem


def folder_of(suite: str) -> str:
    """Return the folder of a suite's name, or of a folder that is named itself."""
    return FOLDERS.get(suite, suite.rstrip("/"))


def file_name(suite: str) -> str:
    """Return what the files of a suite are called, which may be a folder of the tree."""
    return suite.replace("/", "_")


def jobs_of(suite: str, tree: Path, methods: tuple[str, ...]) -> Iterator[Job]:
    """Return the jobs of a suite in a tree, for a server with these methods.

    LabError for a suite that the tree does not have.
    """
    if suite == METHODS:
        scripts = [
            script
            for script in _scripts(tree, FOLDERS["recovery"])
            if re.sub(r"^\d+_", "", Path(script).stem) in WAL_TESTS
        ]
        for method in methods:
            for script in scripts:
                yield _script(suite, FOLDERS["recovery"], script, method)
        return
    folder = folder_of(suite)
    if folder in SCHEDULES:
        tests = len(scheduled(tree / folder / SCHEDULES[folder][1]))
        yield Job(suite, folder, None, None, tests, tests * TYPICAL[folder])
        return
    scripts = _scripts(tree, folder)
    if not scripts:
        raise LabError(_lacking(suite))
    for script in scripts:
        yield _script(suite, folder, script, None)


def refuse_unknown(
    suites: Iterable[str], source: Source, variants: Iterable[Iterable[Patch]]
) -> None:
    """LabError for a suite that neither the source has nor, in each of the variants, a patch adds.

    Reads the whole source for one that has no name of its own.
    """
    named = [suite for suite in suites if suite not in (*FOLDERS, METHODS)]
    for suite in named:
        if "/" not in folder_of(suite):
            raise LabError(_lacking(suite))
    if not named:
        return
    there = {_folder_of_script(name) for name in sources.names(source)}
    for patches in variants:
        changed = [name for patch in patches for name in patching.touched_files(patch)]
        added = {_folder_of_script(name) for name in changed}
        for suite in named:
            if folder_of(suite) not in there | added:
                raise LabError(_lacking(suite))


def _folder_of_script(name: str) -> str:
    """Return the folder whose suite the file is a test of; nothing if it is none."""
    folder, _, script = name.rpartition("/t/")
    return folder if script.endswith(".pl") and "/" not in script else ""


def _lacking(suite: str) -> str:
    return (
        f"--suite {suite}: the tree has no tests {folder_of(suite)}/t/*.pl; name a folder that "
        f"has, or one of {', '.join([*FOLDERS, METHODS])}"
    )


def _scripts(tree: Path, folder: str) -> list[str]:
    return sorted(f"t/{file.name}" for file in (tree / folder / "t").glob("*.pl"))


def _script(suite: str, folder: str, script: str, method: str | None) -> Job:
    subject = re.sub(r"^\d+_", "", Path(script).stem)
    return Job(suite, folder, script, method, 1, TYPICAL_LONG.get(subject, TYPICAL_SCRIPT))


def scheduled(schedule: Path) -> list[str]:
    """Return the tests that a schedule of pg_regress names."""
    return [
        test
        for line in schedule.read_text().splitlines()
        if line.startswith("test:")
        for test in line.removeprefix("test:").split()
    ]


# 16 and newer write TAP: “ok 12   + boolean   163 ms”; 15: “test boolean ... ok  163 ms”, or
# without “test” in a parallel group.
_TAP_RESULT = re.compile(r"^(?P<how>ok|not ok) \d+\s+[-+] (?P<name>\S+)\s+(?P<ms>\d+) ms")
_OLD_RESULT = re.compile(
    r"^(?:test|    ) (?P<name>\S+)\s+\.\.\. (?P<how>ok|FAILED|failed)\b.*?\s(?P<ms>\d+) ms"
)


def scheduled_result(job: Job, line: str) -> Result | None:
    """Return the test whose end a line of pg_regress's output tells, if it does."""
    match = _TAP_RESULT.match(line) or _OLD_RESULT.match(line)
    if not match:
        return None
    outcome: Literal["passed", "failed"] = "passed" if match["how"] == "ok" else "failed"
    return Result(job.suite, match["name"], job.method, outcome, int(match["ms"]) / 1000)


def script_result(job: Job, output: str, code: int | None, seconds: float) -> Result:
    """Return what a Perl test said in TAP; a code of None means that it was killed for its time.

    Whether it passed is what Test::More says with its exit code: points and plan.
    """
    points = len(re.findall(r"^(?:not )?ok \d+", output, re.MULTILINE))
    reasons = re.findall(r"^ok \d+ # skip (.*)$", output, re.MULTILINE | re.IGNORECASE)
    all_of_it = re.search(r"^1\.\.0 # skip\S* (.*)$", output, re.MULTILINE | re.IGNORECASE)
    outcome: Literal["passed", "failed", "skipped"] = "passed" if code == 0 else "failed"
    if all_of_it and code == 0:
        outcome, reasons = "skipped", [all_of_it[1]]
    return Result(
        job.suite,
        Path(job.script or job.suite).stem,
        job.method,
        outcome,
        round(seconds, 2),
        points,
        tuple(reasons),
    )
