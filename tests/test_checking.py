"""Checks: a tree's own tests on a variant, read right, kept, and gone after a kill."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from wallab import paths
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import ledger, sandbox
from wallab.record import series
from wallab.servers import buildsystem, checkresult, ownvariant, suite
from wallab.servers import checks as checking
from wallab.servers.builder import Builder, Server
from wallab.servers.checkresult import Check, SuiteRun
from wallab.servers.patches import Patch, patches_of
from wallab.servers.source import Source
from wallab.servers.suite import Job, Result

NAME = f"check-{os.getpid()}"
PATIENCE = 900
"""Seconds that a machine may take to start a server or to end processes."""

SCRIPTS = {
    "src/bin/pg_test_fsync/t/900_fails.pl": """\
use strict; use warnings FATAL => 'all';
use PostgreSQL::Test::Utils; use Test::More;
ok(1, 'this one holds');
ok(0, 'this one does not');
done_testing();
""",
    "src/bin/pg_test_fsync/t/901_skips.pl": """\
use strict; use warnings FATAL => 'all';
use Test::More skip_all => 'there is no such thing';
""",
    "src/test/recovery/t/999_wal_probe.pl": """\
use strict; use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster; use Test::More;
my $node = PostgreSQL::Test::Cluster->new('probe');
$node->init; $node->start;
note 'method: ', $node->safe_psql('postgres', 'SHOW fsync'), ' ',
  $node->safe_psql('postgres', 'SHOW wal_sync_method');
ok(1, 'started');
$node->stop;
done_testing();
""",
    "src/test/hangs/t/001_hangs.pl": """\
use strict; use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster; use Test::More;
my $node = PostgreSQL::Test::Cluster->new('hangs');
$node->init; $node->start;
note 'the server is up';
sleep 3600;
""",
}


def adding(files: dict[str, str]) -> str:
    """A diff that adds the files."""
    return "".join(
        f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(text.splitlines())} @@\n"
        + "".join(f"+{line}\n" for line in text.splitlines())
        for name, text in files.items()
    )


Variant = tuple[Builder, Server, list[Patch]]


@pytest.fixture(scope="module")
def variant(
    source18: Source, servers: dict[str, Server], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Variant]:
    """A variant of stock whose patch adds tests to the tree."""
    assert servers
    file = tmp_path_factory.mktemp("check") / "tests.patch"
    file.write_text(adding(SCRIPTS))
    builder = Builder(source18, buildsystem.choose("auto", source18))
    with ownvariant.added(NAME, "stock", [file]):
        pass
    try:
        patches = patches_of(series.read(), NAME, source18)
        (server,) = builder.build({NAME: patches})
        yield builder, server, patches
    finally:
        ownvariant.remove(NAME)


def scratch(pid: int) -> list[Path]:
    """Where the tests of a check by that process run, while they do."""
    return sorted(Path(os.environ.get("TMPDIR", "/var/tmp")).glob(f"wal-lab-{pid}-*"))  # noqa: S108


def servers_below(folder: Path) -> list[int]:
    """The processes whose programs lie in the folder."""
    numbers = []
    for candidate in psutil.process_iter(["exe"]):
        if (candidate.info["exe"] or "").startswith(f"{folder}/"):
            numbers.append(candidate.pid)
    return numbers


def test_failures_and_skips_are_told_and_kept(variant: Variant) -> None:
    server = variant[1]
    result = subprocess.run(
        [paths.LAB / "scripts" / "build-variant", NAME, "--check", "--suite", "pg_test_fsync"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 1, result.stderr
    assert "FAILED: pg_test_fsync 900_fails" in result.stdout
    assert "skipped in 901_skips: there is no such thing" in result.stdout
    kept = checkresult.folder_of(server)
    check = jsonfile.load(kept / checkresult.RESULT, Check)
    outcomes = {test.name: (test.outcome, test.points) for test in check.tests}
    assert outcomes["900_fails"] == ("failed", 2)
    assert outcomes["901_skips"] == ("skipped", 0)
    assert outcomes["001_basic"][0] == "passed"
    assert check.key == server.build.key
    logs = kept / "logs" / "pg_test_fsync"
    assert "this one does not" in (logs / "900_fails.log").read_text()
    assert (logs / "900_fails.files" / "log").is_dir()
    assert not (logs / "001_basic.files").exists()
    assert check in checkresult.load_all()
    # A suite that does not exist is refused, and the last result stays.
    with pytest.raises(LabError, match="no tests src/nosuch"):
        checking.check(*variant, ("src/nosuch",))
    assert (kept / checkresult.RESULT).is_file()


def test_wal_tests_run_with_each_method(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "WAL_TESTS", ("wal_probe",))
    result = checking.check(*variant, (suite.METHODS,))
    assert result.failed == []
    assert set(result.methods) >= {"fsync", "fdatasync", "open_sync", "open_datasync"}
    assert sorted(test.method or "" for test in result.tests) == sorted(result.methods)
    logs = checkresult.folder_of(variant[1]) / "logs" / "methods"
    for method in result.methods:
        log = (logs / f"999_wal_probe.{method}.log").read_text()
        assert f"# method: on {method}\n" in log
    assert scratch(os.getpid()) == []


def test_killed_check_leaves_no_server(variant: Variant) -> None:
    command = [".venv/bin/python", "-m", "wallab.command.build_variant", variant[1].build.variant]
    child = subprocess.Popen(
        [*command, "--check", "--suite", "src/test/hangs"],
        cwd=paths.LAB,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = "logs/src_test_hangs/001_hangs.log"
    try:
        deadline = time.monotonic() + PATIENCE
        while not any(
            "the server is up" in (folder / log).read_text()
            for folder in scratch(child.pid)
            if (folder / log).exists()
        ):
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (folder,) = scratch(child.pid)
        assert servers_below(folder)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    if not sandbox.refused():  # they end with their namespace, at once
        deadline = time.monotonic() + PATIENCE
        while servers_below(folder):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    cleared = "\n".join(ledger.clear_dead())
    assert f"removed {folder}" in cleared
    assert not folder.exists()
    assert servers_below(folder) == []


JOB = Job("regress", "src/test/regress", None, None, 3, 1.0)


@pytest.mark.parametrize(
    ("line", "name", "outcome", "seconds"),
    [
        # 16 and newer
        ("ok 1         - test_setup   163 ms", "test_setup", "passed", 0.163),
        ("not ok 12    + boolean   63 ms", "boolean", "failed", 0.063),
        # 15
        ("test tablespace                   ... ok   1205 ms", "tablespace", "passed", 1.205),
        ("     boolean   ... FAILED   63 ms", "boolean", "failed", 0.063),
        ("     random    ... failed (ignored)   63 ms", "random", "failed", 0.063),
    ],
)  # fmt: skip
def test_lines_of_pg_regress(line: str, name: str, outcome: str, seconds: float) -> None:
    test = suite.scheduled_result(JOB, line)
    assert test is not None
    assert (test.name, test.outcome, test.seconds) == (name, outcome, seconds)


@pytest.mark.parametrize(
    "line", ["# parallel group (20 tests):  a b", "parallel group (2 tests):  a b", "1..231", ""]
)
def test_other_lines_of_pg_regress(line: str) -> None:
    assert suite.scheduled_result(JOB, line) is None


def test_points_of_a_script() -> None:
    job = Job("recovery", "src/test/recovery", "t/017_shm.pl", None, 1, 4.0)
    output = "ok 1 - a\nok 2 # skip no such platform\n    ok 1 - inside\n1..2\n"
    test = suite.script_result(job, output, 0, 1.0)
    assert (test.outcome, test.points, test.skipped) == ("passed", 2, ("no such platform",))
    assert suite.script_result(job, "ok 1 - a\n", 2, 1.0).outcome == "failed"
    assert suite.script_result(job, output, None, 1.0).outcome == "failed"


def test_every_default_suite_is_in_the_tree(tree18: Path) -> None:
    for name in suite.FOLDERS:
        assert sum(job.tests for job in suite.jobs_of(name, tree18, ("fsync",))) > 0
    jobs = list(suite.jobs_of(suite.METHODS, tree18, ("fsync", "open_sync")))
    assert len(jobs) == 2 * len({job.script for job in jobs}) > 20


def test_result_is_read_back(tmp_path: Path) -> None:
    tests = (
        Result("recovery", "a", None, "passed", 1.26),
        Result("recovery", "b", None, "skipped", 0.0, 0, ("no such thing",)),
        Result("methods", "a", "fsync", "failed", 2.0, 3),
    )
    result = Check("stock", "18.6", "meson", (), "key", "2026", 4.0, 2, ("fsync",), tests)
    jsonfile.save(tmp_path / "x.json", result)
    assert jsonfile.load(tmp_path / "x.json", Check) == result
    assert json.loads((tmp_path / "x.json").read_text())["tests"][2]["method"] == "fsync"
    assert checkresult.summary(result) == [
        ("recovery", "1", "0", "1", "1", "1"),
        ("methods, fsync", "1", "1", "0", "3", "2"),
    ]


def one_check(key: str, seconds: float, *tests: Result) -> Check:
    """A check that had these results."""
    return Check(
        "stock", "18.6", "meson", (), key, f"2026-{seconds}", seconds, 2, ("fsync",), tests
    )


def keep(folder: Path, result: Check) -> Check:
    """Keep the result with a log for each suite, and return what is then kept."""
    logs = folder / f"run-{result.seconds}"
    for name in result.suites:
        log = logs / name.replace("/", "_") / "a.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"{result.seconds}")
    target = folder / "checks" / "18.6-stock"
    checkresult.keep(logs, result, target)
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    return jsonfile.load(target / checkresult.RESULT, Check)


def logs_kept(folder: Path) -> dict[str, str]:
    """Suite folder -> what its log says."""
    logs = folder / "checks" / "18.6-stock" / "logs"
    return {path.name: (path / "a.log").read_text() for path in logs.iterdir()}


def test_results_of_other_suites_stay(tmp_path: Path) -> None:
    recovery = Result("recovery", "a", None, "failed", 1.0)
    waldump = Result("pg_waldump", "a", None, "passed", 1.0)
    other = Result("src/bin/x", "a", None, "passed", 1.0)
    first = one_check("key", 1.0, recovery, waldump)
    assert keep(tmp_path, first) == first
    both = keep(tmp_path, one_check("key", 2.0, other))
    assert both.tests == (recovery, waldump, other)
    assert both.earlier == (SuiteRun(("recovery", "pg_waldump"), "2026-1.0", 1.0, 2),)
    assert logs_kept(tmp_path) == {"recovery": "1.0", "pg_waldump": "1.0", "src_bin_x": "2.0"}
    # A suite that runs again is replaced, and what a run is known for goes with it.
    again = msgspec.structs.replace(recovery, outcome="passed")
    third = keep(tmp_path, one_check("key", 4.0, again))
    assert third.tests == (again, waldump, other)
    assert third.failed == []
    assert [run.suites for run in third.earlier] == [("pg_waldump",), ("src/bin/x",)]
    assert third.took == 7.0
    assert logs_kept(tmp_path) == {"recovery": "4.0", "pg_waldump": "1.0", "src_bin_x": "2.0"}
    # By its folder it is the same suite.
    by_folder = msgspec.structs.replace(waldump, suite="src/bin/pg_waldump")
    fourth = keep(tmp_path, one_check("key", 8.0, by_folder))
    assert fourth.tests == (again, other, by_folder)
    assert fourth.took == 14.0
    assert "pg_waldump" not in logs_kept(tmp_path)


def test_results_of_another_build_go(tmp_path: Path) -> None:
    keep(tmp_path, one_check("key", 1.0, Result("recovery", "a", None, "passed", 1.0)))
    newer = one_check("another", 2.0, Result("regress", "a", None, "passed", 1.0))
    assert keep(tmp_path, newer) == newer
    assert logs_kept(tmp_path) == {"regress": "2.0"}


def test_results_without_earlier_runs_are_read(tmp_path: Path) -> None:
    """Written before runs were merged; they count like any others."""
    tests = (Result("regress", "a", None, "passed", 1.0),)
    old = jsonfile.dumps(one_check("key", 1.0, *tests)).replace(b',"earlier":[]', b"")
    assert b"earlier" not in old
    file = tmp_path / "checks" / "18.6-stock" / checkresult.RESULT
    file.parent.mkdir(parents=True)
    file.write_bytes(old)
    assert jsonfile.load(file, Check).tests == tests
    newest = one_check("key", 2.0, Result("recovery", "a", None, "passed", 1.0))
    assert keep(tmp_path, newest).tests == (*tests, *newest.tests)
