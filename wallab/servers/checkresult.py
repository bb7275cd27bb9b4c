"""What checks of a server showed: result.json, which is kept, merged and written for people."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from wallab import paths
from wallab.files import jsonfile
from wallab.record.build import AppliedPatch
from wallab.servers import suite
from wallab.servers.builder import Server
from wallab.servers.suite import Result

RESULT = "result.json"


class SuiteRun(msgspec.Struct, frozen=True):
    """An earlier check of the same server, of other suites."""

    suites: tuple[str, ...]
    """Those whose results are still the newest."""
    started: str
    """UTC."""
    seconds: float
    """Of the whole run, also for suites that were checked again later."""
    cpus: int


class Check(msgspec.Struct, frozen=True):
    """build/checks/<version>/<variant>/result.json: checks of a server that ran to their end.

    The newest run, and the results of suites that earlier runs checked on the same server.
    """

    variant: str
    version: str
    build_system: str
    patches: tuple[AppliedPatch, ...]
    key: str
    """Of the server's build.json."""
    started: str
    """UTC; as the next two, of the newest run."""
    seconds: float
    cpus: int
    methods: tuple[str, ...]
    """The server's values of wal_sync_method."""
    tests: tuple[Result, ...]
    """Of the newest run and of the earlier ones, suite by suite."""
    earlier: tuple[SuiteRun, ...] = ()

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites that there are results of, in the tests' order."""
        return tuple(dict.fromkeys(test.suite for test in self.tests))

    @property
    def took(self) -> float:
        """Seconds of all runs that the results come from."""
        return self.seconds + sum(run.seconds for run in self.earlier)

    @property
    def failed(self) -> list[Result]:
        """The tests that failed."""
        return [test for test in self.tests if test.outcome == "failed"]


def folder_of(server: Server) -> Path:
    """Return where the results and logs of the server's check are."""
    return paths.BUILD / "checks" / server.path.parent.name / server.build.variant


def load_all() -> list[Check]:
    """Return the checks below build/checks, in the order of their folders."""
    files = sorted((paths.BUILD / "checks").glob(f"[0-9]*/[a-z0-9]*/{RESULT}"))
    return [jsonfile.read(file, Check, "remove it, and check again") for file in files]


def keep(logs: Path, result: Check, target: Path) -> None:
    """Put a run's results and logs in their place in one step, with the earlier ones that count.

    Those are of the same server and of suites that this run did not check.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent):
        fresh = target.with_name(f".{target.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        try:
            shutil.copytree(logs, fresh / "logs", symlinks=True)
            whole = result
            if (before := _earlier(target, result)) is not None:
                whole = merged(before, result)
                for name in {
                    suite.file_name(suite_name)
                    for run in whole.earlier
                    for suite_name in run.suites
                }:
                    if (target / "logs" / name).is_dir():
                        shutil.copytree(
                            target / "logs" / name, fresh / "logs" / name, symlinks=True
                        )
            jsonfile.save(fresh / RESULT, whole)
            shutil.rmtree(target, ignore_errors=True)
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one check at a time read, merge and replace results; two may end together."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _earlier(target: Path, result: Check) -> Check | None:
    """Return the results that are in that place, if they are of the same server."""
    try:
        before = jsonfile.load(target / RESULT, Check)
    except (OSError, msgspec.MsgspecError):
        return None
    return before if before.key == result.key else None


def merged(before: Check, newest: Check) -> Check:
    """Return the newest results, and those before of other suites; both are of one server."""
    again = {suite.folder_of(name) for name in newest.suites}
    left = [test for test in before.tests if suite.folder_of(test.suite) not in again]
    names = {test.suite for test in left}
    by_run = {name for run in before.earlier for name in run.suites}
    last = SuiteRun(
        tuple(name for name in before.suites if name not in by_run),
        before.started,
        before.seconds,
        before.cpus,
    )
    earlier = [
        msgspec.structs.replace(run, suites=tuple(name for name in run.suites if name in names))
        for run in (*before.earlier, last)
    ]
    order = [*suite.FOLDERS, suite.METHODS]
    tests = sorted(
        (*left, *newest.tests),
        key=lambda test: order.index(test.suite) if test.suite in order else len(order),
    )
    return msgspec.structs.replace(
        newest, tests=tuple(tests), earlier=tuple(run for run in earlier if run.suites)
    )


Row = tuple[str, ...]


def summary(result: Check) -> list[Row]:
    """Return a row for each suite and method: name, run, failed, skipped, points, seconds."""
    groups: dict[tuple[str, str | None], list[Result]] = {}
    for test in result.tests:
        groups.setdefault((test.suite, test.method), []).append(test)
    return [
        (
            f"{name}, {method}" if method else name,
            str(sum(test.outcome != "skipped" for test in tests)),
            str(sum(test.outcome == "failed" for test in tests)),
            str(sum(test.outcome == "skipped" for test in tests)),
            str(sum(test.points for test in tests)),
            f"{sum(test.seconds for test in tests):.0f}",
        )
        for (name, method), tests in groups.items()
    ]


def text(result: Check, logs: Path) -> str:
    """Write the result for people: the summary, why tests were skipped, which failed."""
    rows = [("suite", "run", "failed", "skipped", "points", "seconds"), *summary(result)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"{result.variant}: PostgreSQL {result.version}, {result.build_system}"]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join(cells))
    for reason, names in _reasons(result).items():
        lines.append(f"  skipped in {', '.join(names)}: {reason}")
    for test in result.failed:
        method = f" with {test.method}" if test.method else ""
        lines.append(f"  FAILED: {test.suite} {test.name}{method}")
    lines.append(f"  logs: {logs}")
    return "\n".join(lines)


def _reasons(result: Check) -> dict[str, list[str]]:
    """Why tests or points of them were skipped, and which."""
    reasons: dict[str, list[str]] = {}
    for test in result.tests:
        for reason in test.skipped:
            names = reasons.setdefault(reason, [])
            if test.name not in names:
                names.append(test.name)
    return reasons
