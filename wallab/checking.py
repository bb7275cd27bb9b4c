"""Run a tree's own tests on a variant: on the very server that gets measured.

What the tests need is copied to a folder of their own, which the user that servers run as can
reach; there the tests run as that user, some at a time, and there everything of theirs stays.
"""

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from wallab import cluster, jsonfile, paths, process, suite
from wallab.builder import AppliedPatch, Builder, Server
from wallab.errors import LabError, MachineError
from wallab.ledger import Ledger
from wallab.progress import Work
from wallab.series import Patch
from wallab.suite import Job, Result

RESULT = "result.json"
PATIENCE = 2 * 3600.0
"""Seconds after which a job is ended; the tests' own limits are far below."""
LONGEST_SCRATCH = 50
"""Characters of the folder's path: the tests' sockets lie below it, and 107 are allowed."""


class Run(msgspec.Struct, frozen=True):
    """An earlier check of the same server, of other suites."""

    suites: tuple[str, ...]
    """Those whose results are still the newest."""
    started: str
    """UTC."""
    seconds: float
    """Of the whole run, also for suites that were checked again later."""
    cpus: int


class Check(msgspec.Struct, frozen=True):
    """build/checks/<version>-<variant>/result.json: checks of a server that ran to their end.

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
    earlier: tuple[Run, ...] = ()

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
    return paths.BUILD / "checks" / f"{server.path.parent.name}-{server.build.variant}"


def check(builder: Builder, server: Server, patches: list[Patch], suites: tuple[str, ...]) -> Check:
    """Run the suites on the server, keep results and logs beside those of its other suites.

    Return the results of these suites alone. LabError for a suite that the tree lacks,
    MachineError where the tests cannot run.
    """
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    begun = time.monotonic()
    ledger = Ledger.open()
    try:
        kit = _kit(builder, server, patches, suites, ledger)
        methods = cluster.methods(kit / "server")
        jobs = [job for one in suites for job in suite.jobs_of(one, kit / "tree", methods)]
        title = f"checking {server.build.variant} of PostgreSQL {server.build.version}"
        with Work(title) as work:
            tests = _Runner(kit, jobs, work).run()
        result = Check(
            server.build.variant,
            server.build.version,
            server.build.build_system,
            server.build.patches,
            server.build.key,
            started,
            round(time.monotonic() - begun, 1),
            len(os.sched_getaffinity(0)),
            methods,
            tuple(tests),
        )
        keep(kit / "logs", result, folder_of(server))
        return result
    except OSError as error:
        raise MachineError(f"checking {server.build.variant}: {error}") from None
    finally:
        ledger.close()


def load_all() -> list[Check]:
    """Return the checks below build/checks, in the order of their folders."""
    found = sorted((paths.BUILD / "checks").glob(f"*/{RESULT}"))
    return [jsonfile.load(file, Check) for file in found]


def _scratch(ledger: Ledger) -> Path:
    """Make the folder, which the tests' user owns; MachineError where it could not reach it."""
    base = Path(os.environ.get("TMPDIR", "/var/tmp")).absolute()  # noqa: S108 - too much for /tmp
    folder = base / f"wal-lab-{os.getpid()}"
    if process.server_user():
        for parent in folder.parents:
            if not parent.stat().st_mode & 0o001:
                raise MachineError(
                    f"the tests run as {process.server_user()}, who may not pass {parent}: set "
                    "TMPDIR to a folder that everybody can reach"
                )
    if len(str(folder)) > LONGEST_SCRATCH:
        raise MachineError(
            f"{folder} is too long a path for the tests' sockets: set TMPDIR to one of at most "
            f"{LONGEST_SCRATCH - len(folder.name) - 1} characters"
        )
    ledger.add_folder(folder)
    folder.mkdir(mode=0o755)
    return folder


def _kit(
    builder: Builder,
    server: Server,
    patches: list[Patch],
    suites: tuple[str, ...],
    ledger: Ledger,
) -> Path:
    """Copy the server and what its tests need to a folder of their own, and return that."""
    kit = _scratch(ledger)
    folders = {suite.FOLDERS["recovery"], suite.FOLDERS["regress"], "src/test/perl"}
    folders |= {suite.folder_of(one) for one in suites if one != suite.METHODS}

    def copy(source: Path, build: Path) -> None:
        for folder in folders:
            if not (source / folder).resolve().is_relative_to(source.resolve()):
                raise LabError(f"--suite {folder}: leads out of the tree")
            if (source / folder).is_dir():
                shutil.copytree(source / folder, kit / "tree" / folder, symlinks=True)
        for program in suite.PROGRAMS:
            (kit / "programs").mkdir(exist_ok=True)
            shutil.copy2(build / program, kit / "programs")

    builder.with_tree(server.build.variant, patches, copy)
    shutil.copytree(server.path, kit / "server", symlinks=True)
    for folder in ("run", "logs", "tmp"):
        (kit / folder).mkdir()
    for path in (kit, *kit.rglob("*")):
        if not path.is_symlink():
            process.own(path)
    return kit


class _Running(msgspec.Struct):
    """A job under way."""

    job: Job
    child: subprocess.Popen[bytes]
    log: BinaryIO
    """Read as it grows."""
    begun: float
    tests: list[Result]
    rest: str = ""
    """The beginning of a line that is not complete yet."""


class _Runner:
    """Runs jobs, as many at a time as there are processors, the longest first."""

    def __init__(self, kit: Path, jobs: list[Job], work: Work) -> None:
        self._kit = kit
        self._waiting = sorted(jobs, key=lambda job: -job.typical)
        self._total = sum(job.typical for job in jobs)
        self._done = 0.0
        self._work = work
        self._running: list[_Running] = []
        self._finished: list[Result] = []

    def run(self) -> list[Result]:
        """Run all jobs and return their tests, suite by suite."""
        self._template()
        order = {job.suite: number for number, job in enumerate(self._waiting)}
        places = len(os.sched_getaffinity(0))
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < places:
                    self._running.append(self._start(self._waiting.pop(0)))
                self._look()
                time.sleep(0.05)
        finally:
            for one in self._running:
                process.end_group(one.child)
                one.log.close()
        return sorted(self._finished, key=lambda test: order[test.suite])

    def _environment(self) -> dict[str, str]:
        server = self._kit / "server"
        return {
            "PATH": f"{server}/bin:{os.environ.get('PATH', os.defpath)}",
            "LD_LIBRARY_PATH": f"{server}/lib",
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(self._kit / "tmp"),
            "HOME": f"{self._kit}/run",
            "INITDB_TEMPLATE": f"{self._kit}/template",
            "PG_REGRESS": f"{self._kit}/programs/pg_regress",
            "REGRESS_SHLIB": f"{self._kit}/programs/regress.so",
            "PG_TEST_PORT_DIR": f"{self._kit}/run",
            "top_builddir": f"{self._kit}/run",
            "share_contrib_dir": f"{server}/share/contrib",
            "enable_injection_points": "no",
            # The machine may have other things to do.
            "PG_TEST_TIMEOUT_DEFAULT": "600",
        }

    def _template(self) -> None:
        """Make the cluster that the tests of 17 and newer copy instead of calling initdb."""
        program = self._kit / "server" / "bin" / "initdb"
        options = ["-A", "trust", "--no-sync", "--no-instructions", "--lc-messages=C", "--no-clean"]
        child = process.spawn(
            [program, "-D", self._kit / "template", *options],
            as_server=True,
            environment=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            _, errors = child.communicate()
        finally:
            process.end_group(child)
        if child.returncode:
            raise LabError(f"initdb failed: {errors.decode(errors='replace').strip()[-500:]}")

    def _command(self, job: Job, home: Path) -> list[str | Path]:
        if job.script:
            tree = self._kit / "tree"
            return ["perl", "-I", tree / "src/test/perl", "-I", tree / job.folder, job.script]
        program, schedule = suite.SCHEDULES[job.folder]
        return [
            self._kit / "programs" / program,
            f"--temp-instance={home / 'instance'}",
            "--inputdir=.",
            f"--outputdir={home}",
            "--bindir=",
            f"--dlpath={self._kit / 'programs'}",
            "--max-concurrent-tests=20",
            f"--schedule={schedule}",
        ]

    def _start(self, job: Job) -> _Running:
        home = self._kit / "run" / f"{_file_name(job.suite)}.{job.name}"
        home.mkdir()
        process.own(home)
        environment = self._environment()
        environment |= {"TESTDATADIR": f"{home}/data", "TESTLOGDIR": f"{home}/log"}
        # Up to 15 both are below this one; unset, their paths are relative, and servers that
        # archive, which run elsewhere, do not find them.
        environment["TESTDIR"] = str(home)
        if job.method:
            settings = home / "settings.conf"
            # The tests' servers never sync unless they are told.
            settings.write_text(f"fsync = on\nwal_sync_method = {job.method}\n")
            process.own(settings)
            environment["TEMP_CONFIG"] = str(settings)
        log = self._log(job)
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as output:
            child = process.spawn(
                self._command(job, home),
                as_server=True,
                contained=True,
                cwd=self._kit / "tree" / job.folder,
                environment=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return _Running(job, child, log.open("rb"), time.monotonic(), [])

    def _log(self, job: Job) -> Path:
        return self._kit / "logs" / _file_name(job.suite) / f"{job.name}.log"

    def _look(self) -> None:
        """Read what the jobs have said, and take in those that ended."""
        for one in list(self._running):
            ended = one.child.poll() is not None
            seconds = time.monotonic() - one.begun
            too_long = not ended and seconds > PATIENCE
            if too_long:
                process.end_group(one.child)
            if one.job.script is None:
                self._read_schedule(one)
            if ended or too_long:
                self._end(one, None if too_long else one.child.returncode, seconds)
        under_way = sum(
            len(one.tests) / max(one.job.tests, 1) * one.job.typical for one in self._running
        )
        share = (self._done + min(under_way, self._total)) / (self._total or 1)
        names = ", ".join(f"{one.job.suite} {one.job.name}" for one in self._running)
        self._work.update(min(share, 1.0), names)

    def _read_schedule(self, one: _Running) -> None:
        lines = (one.rest + one.log.read().decode(errors="replace")).split("\n")
        one.rest = lines.pop()
        for line in lines:
            if test := suite.scheduled_result(one.job, line):
                one.tests.append(test)

    def _end(self, one: _Running, code: int | None, seconds: float) -> None:
        """Take in an ended job; its servers' logs are kept if it failed."""
        job = one.job
        if job.script:
            output = one.log.read().decode(errors="replace")
            one.tests.append(suite.script_result(job, output, code, seconds))
        elif code != 0 and not any(test.outcome == "failed" for test in one.tests):
            # It ended before its tests did.
            whole = Result(job.suite, job.suite, job.method, "failed", round(seconds, 2), 0)
            one.tests.append(whole)
        one.log.close()
        home = self._kit / "run" / f"{_file_name(job.suite)}.{job.name}"
        failed = [test.name for test in one.tests if test.outcome == "failed"]
        if failed:
            self._work.line(f"FAILED: {job.suite} {', '.join(failed)} ({job.name})")
            _keep_evidence(home, self._log(job).with_suffix(".files"))
        shutil.rmtree(home, ignore_errors=True)
        self._running.remove(one)
        self._finished += one.tests
        self._done += job.typical


def _keep_evidence(home: Path, target: Path) -> None:
    """Copy what explains a failure: differences and the servers' logs."""
    target.mkdir()
    for pattern in ("regression.*", "output_iso/regression.*", "results", "log", "tmp_check/log"):
        for found in home.glob(pattern):
            if found.is_dir():
                shutil.copytree(found, target / found.name, symlinks=True)
            else:
                shutil.copy2(found, target)


def _file_name(one_suite: str) -> str:
    """Return what the files of a suite are called, which may be a folder of the tree."""
    return one_suite.replace("/", "_")


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
                for name in {_file_name(one) for run in whole.earlier for one in run.suites}:
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
    again = {suite.folder_of(one) for one in newest.suites}
    left = [test for test in before.tests if suite.folder_of(test.suite) not in again]
    names = {test.suite for test in left}
    by_run = {one for run in before.earlier for one in run.suites}
    last = Run(
        tuple(one for one in before.suites if one not in by_run),
        before.started,
        before.seconds,
        before.cpus,
    )
    earlier = [
        msgspec.structs.replace(run, suites=tuple(one for one in run.suites if one in names))
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
