"""Run the jobs of a check: as the user that servers run as, some at a time."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from wallab.machine import process
from wallab.progress import Work
from wallab.servers import suite
from wallab.servers.suite import Job, Result

PATIENCE = 2 * 3600.0
"""Seconds after which a job is ended; the tests' own limits are far below."""


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


class JobRunner:
    """Runs jobs, as many at a time as there are processors, the longest first."""

    def __init__(self, kit: Path, jobs: list[Job], work: Work) -> None:
        """`kit` is the folder with all that the tests need; what is theirs stays there."""
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
        command: list[str | Path] = [program, "-D", self._kit / "template", *options]
        process.must_run(command, "initdb", self._environment())

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
        home = self._kit / "run" / f"{suite.file_name(job.suite)}.{job.name}"
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
        return self._kit / "logs" / suite.file_name(job.suite) / f"{job.name}.log"

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
        home = self._kit / "run" / f"{suite.file_name(job.suite)}.{job.name}"
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
