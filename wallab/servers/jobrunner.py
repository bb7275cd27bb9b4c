"""Run the jobs of a check in their sandbox, some at a time.

The lab looks after folders that no job can change, and at what is in others by `foreign` alone.
"""

import os
import stat
import subprocess
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from wallab.duration import duration
from wallab.errors import LabError
from wallab.files import foreign
from wallab.files.foreign import Refused
from wallab.machine import scratch
from wallab.machine.sandbox import Sandbox
from wallab.progress import Work
from wallab.servers import suite
from wallab.servers.suite import Job, Result

PATIENCE = 2 * 3600.0
"""Seconds after which a job is ended; the tests' own limits are far below."""

LONGEST_LOG = 64 << 20
"""Bytes that a job may print."""


EVIDENCE = ("regression.*", "output_iso/regression.*", "results", "log", "tmp_check/log")
"""What a failed job leaves that explains it."""


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

    def __init__(self, box: Sandbox, logs: Path, jobs: list[Job], work: Work) -> None:
        """The sandbox's folder has all that the tests need; what is theirs stays there."""
        self._box = box
        self._kit = box.folder
        self._owner = (self._kit / "tmp").stat().st_uid
        self._logs = logs
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
            for running in self._running:
                self._box.settle(running.child, others=True)
                running.log.close()
        return sorted(self._finished, key=lambda test: order[test.suite])

    def _environment(self) -> dict[str, str]:
        server = self._kit / "server"
        return {
            "PATH": f"{server}/bin:{os.environ.get('PATH', os.defpath)}",
            "LD_LIBRARY_PATH": f"{server}/lib",
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(self._kit / "tmp"),
            "HOME": f"{self._kit}/shared",
            "INITDB_TEMPLATE": f"{self._kit}/template",
            "PG_REGRESS": f"{self._kit}/programs/pg_regress",
            "REGRESS_SHLIB": f"{self._kit}/programs/regress.so",
            "PG_TEST_PORT_DIR": f"{self._kit}/shared",
            "top_builddir": f"{self._kit}/shared",
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
        words = b""
        try:
            for line in self._box.lines(command, variables=self._environment()):
                words += line
        except subprocess.CalledProcessError:
            text = foreign.printable(words.decode(errors="replace").strip()[-500:])
            raise LabError(f"initdb failed: {text}") from None

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
        home = self._home(job)
        home.mkdir()
        os.chown(home, self._owner, -1)
        environment = self._environment()
        environment |= {"TESTDATADIR": f"{home}/data", "TESTLOGDIR": f"{home}/log"}
        # Up to 15 both are below this one; unset, their paths are relative, and servers that
        # archive, which run elsewhere, do not find them.
        environment["TESTDIR"] = str(home)
        if job.method:
            settings = self._kit / f"{job.method}.conf"
            # The tests' servers never sync unless they are told.
            settings.write_text(f"fsync = on\nwal_sync_method = {job.method}\n")
            environment["TEMP_CONFIG"] = str(settings)
        log = self._log(job)
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as output:
            child = self._box.start(
                self._command(job, home),
                cwd=self._kit / "tree" / job.folder,
                variables=environment,
                stdout=output,
            )
        return _Running(job, child, log.open("rb"), time.monotonic(), [])

    def _home(self, job: Job) -> Path:
        return self._kit / "run" / f"{suite.file_name(job.suite)}.{job.name}"

    def _log(self, job: Job) -> Path:
        return self._logs / suite.file_name(job.suite) / f"{job.name}.log"

    def _look(self) -> None:
        """Read what the jobs have said, and take in those that ended."""
        for running in list(self._running):
            ended = running.child.poll() is not None
            seconds = time.monotonic() - running.begun
            reason = "" if ended else self._too_much(running, seconds)
            if reason:
                self._work.line(f"{running.job.suite} {running.job.name}: stopped, since {reason}")
            if ended or reason:
                self._box.settle(running.child, others=True)
            if running.job.script is None:
                self._read_schedule(running)
            if ended or reason:
                self._end(running, None if reason else running.child.returncode, seconds)
        under_way = sum(
            len(running.tests) / max(running.job.tests, 1) * running.job.typical
            for running in self._running
        )
        share = (self._done + min(under_way, self._total)) / (self._total or 1)
        names = ", ".join(f"{job.suite} {job.name}" for job in (r.job for r in self._running))
        self._work.update(min(share, 1.0), names)

    def _too_much(self, running: _Running, seconds: float) -> str:
        """Say why a job must be ended; nothing if it need not."""
        if seconds > PATIENCE:
            return f"it ran for more than {duration(PATIENCE)}"
        if os.fstat(running.log.fileno()).st_size > LONGEST_LOG:
            return f"it printed more than {LONGEST_LOG >> 20} MB"
        return self._box.check(running.begun)

    def _read_schedule(self, running: _Running) -> None:
        lines = (running.rest + _text(running.log)).split("\n")
        running.rest = lines.pop()
        for line in lines:
            if test := suite.scheduled_result(running.job, line):
                running.tests.append(test)

    def _end(self, running: _Running, code: int | None, seconds: float) -> None:
        """Take in an ended job; its servers' logs are kept if it failed."""
        job = running.job
        if job.script:
            result = suite.script_result(job, _text(running.log), code, seconds)
            running.tests.append(result)
        elif code != 0 and not any(test.outcome == "failed" for test in running.tests):
            # It ended before its tests did.
            whole = Result(job.suite, job.suite, job.method, "failed", round(seconds, 2), 0)
            running.tests.append(whole)
        running.log.close()
        failed = [test.name for test in running.tests if test.outcome == "failed"]
        if failed:
            self._work.line(f"FAILED: {job.suite} {', '.join(failed)} ({job.name})")
            self._keep_evidence(job)
        scratch.remove(self._home(job))
        self._running.remove(running)
        self._finished += running.tests
        self._done += job.typical

    def _keep_evidence(self, job: Job) -> None:
        """Copy what explains a failure: differences and the servers' logs."""
        home, target = self._home(job), self._log(job).with_suffix(".files")
        target.mkdir()
        for pattern in EVIDENCE:
            for match in home.glob(pattern):
                copy = foreign.copy if stat.S_ISDIR(match.lstat().st_mode) else foreign.copy_file
                inner = f"{home.name}/{match.relative_to(home)}"
                try:
                    copy(home.parent, inner, target / match.name, self._owner)
                except (Refused, OSError) as error:
                    self._work.line(f"{job.name}: not kept: {error}")


def _text(log: BinaryIO) -> str:
    """Read what there is of a job's output, which has a limit that it may be slow to meet."""
    return log.read(LONGEST_LOG).decode(errors="replace")
