"""pgbench's report is read, not guessed."""

import subprocess
from pathlib import Path
from unittest import mock

import pytest

from wallab.bench import pgbench as workload
from wallab.bench import workloads
from wallab.bench.runner import Runner
from wallab.bench.workloads.builtin import Builtin
from wallab.record.measured import Course, Latency, Measured, ScheduleLag

REPORT = """pgbench (18.6)
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 10
query mode: simple
number of clients: 50
number of threads: 1
maximum number of tries: 1
duration: 2 s
number of transactions actually processed: 1234
number of failed transactions: 2 (0.162%)
latency average = 81.234 ms
initial connection time = 45.678 ms
tps = 615.432109 (without initial connection time)
"""


def test_report() -> None:
    assert workload.parse(REPORT) == Measured(615.432109, 1234, 2, 81.234, 45.678)


def test_report_of_14_has_no_failed_transactions() -> None:
    without = "\n".join(line for line in REPORT.splitlines() if "failed" not in line)
    assert workload.parse(without).failed == 0


@pytest.mark.parametrize("lost", ["tps =", "latency average", "actually processed"])
def test_missing_figure(lost: str) -> None:
    cut = "\n".join(line for line in REPORT.splitlines() if lost not in line)
    with pytest.raises(workload.RunFailed):
        workload.parse(cut)


def test_a_server_that_hangs_fails_the_run() -> None:
    child = subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        with pytest.raises(workload.RunFailed, match="does not end"):
            workload.Pgbench.finish(child, patience=0.1)
    finally:
        child.kill()
        child.communicate()


def test_a_warm_up_in_which_nothing_ended_spoils_no_sample() -> None:
    """On a slow machine 50 clients may need longer for their first transactions than it lasts."""
    nothing = REPORT[: REPORT.index("1234")] + "0\n"
    with pytest.raises(workload.NothingDone, match="no transaction ended"):
        workload.parse(nothing)
    runner = mock.Mock()
    runner.pgbench.side_effect = workload.NothingDone
    assert Builtin("tpcb-like").warm_up(mock.Mock(), runner) is None
    runner.pgbench.side_effect = workload.RunFailed("the server has gone")
    with pytest.raises(workload.RunFailed):
        Builtin("tpcb-like").warm_up(mock.Mock(), runner)


# As pgbench 18 reports a run with -R.
PACED = REPORT.replace(
    "latency average = 81.234 ms\n",
    "latency average = 81.234 ms\nlatency stddev = 9.876 ms\n"
    "rate limit schedule lag: avg 1.250 (max 30.500) ms\n",
)


def stage_of(folder: Path, **asked: object) -> mock.Mock:
    """A stage whose cell asks for this."""
    stage = mock.Mock(seed=None, server=Path("/nonexistent"))
    plain = {"cpus": None, "clients": 3, "scale": 7, "rate": None, "think_ms": 0}
    stage.conditions = mock.Mock(**(plain | asked))
    stage.cluster.log = folder / "postgresql.log"
    stage.cluster.clients = folder
    return stage


def ran(stage: mock.Mock, report: str) -> tuple[Measured, list[str]]:
    """What a pgbench that prints this is told to have measured, and its arguments."""
    child = subprocess.Popen(
        ["echo", report], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    with mock.patch.object(workload.Pgbench, "start", return_value=child) as start:
        figures, _ = Runner(stage, mock.Mock()).pgbench(["-b", "tpcb-like"], transactions=5)
    return figures, list(start.call_args.args)


def test_schedule_lag() -> None:
    assert workload.parse(PACED).lag == ScheduleLag(1.25, 30.5)
    assert workload.parse(PACED).latency_ms == 81.234
    assert workload.parse(REPORT).lag is None


def test_a_rate(tmp_path: Path) -> None:
    figures, arguments = ran(stage_of(tmp_path, rate=250), PACED)
    assert arguments[arguments.index("-R") + 1] == "250"
    assert figures.lag is not None
    assert "-R" not in ran(stage_of(tmp_path), REPORT)[1]


def test_a_pgbench_that_keeps_to_no_rate_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(workload.RunFailed, match="kept to no rate"):
        ran(stage_of(tmp_path, rate=250), REPORT)


def test_rest_is_in_the_script_and_in_no_latency(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, think_ms=20)
    transaction = mock.patch.object(workload.Pgbench, "builtin", return_value="BEGIN;\nEND;\n")
    builtin = Builtin("tpcb-like")
    with transaction as show:
        builtin.prepare(stage, mock.Mock())
    show.assert_called_once_with("tpcb-like")
    script = tmp_path / "resting.sql"
    assert script.read_text() == "\\sleep 20 ms\nBEGIN;\nEND;\n"
    assert builtin.script(stage) == ["-s", "7", "-f", str(script)]
    figures, _ = ran(stage, REPORT)
    assert figures.latency_ms == 61.234
    # Without a rest it is pgbench's own.
    other = stage_of(tmp_path / "none")
    builtin.prepare(other, mock.Mock())
    assert builtin.script(other) == ["-b", "tpcb-like"]


def test_percentiles_have_no_rest() -> None:
    course = Course(Latency(21, 22, 23, 24, 25.5), (4,), (1.0, 1.0))
    measured = Measured(1.0, 1, 0, 22.5, 1.0, course)
    rested = workload.without_rest(measured, 20)
    assert rested.latency_ms == 2.5
    assert rested.course is not None
    assert rested.course.latency_ms == Latency(1, 2, 3, 4, 5.5)
    assert rested.course.per_second == (4,)
    assert workload.without_rest(measured, 0) == measured


def test_a_script_that_pgbench_does_not_show() -> None:
    child = subprocess.Popen(["false"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pgbench = workload.Pgbench(Path("/nonexistent"), mock.Mock())
    with (
        mock.patch.object(workload.Pgbench, "start", return_value=child),
        pytest.raises(workload.RunFailed, match="does not show its script nosuch"),
    ):
        pgbench.builtin("nosuch")


def test_rows_by_the_thousand(tmp_path: Path) -> None:
    stage = stage_of(tmp_path)
    workload_of_rows = workloads.find("bulk-insert")
    workload_of_rows.prepare(stage, mock.Mock())
    script = tmp_path / "bulk.sql"
    assert "generate_series(1, 1000)" in script.read_text()
    assert workload_of_rows.script(stage) == ["-s", "7", "-f", str(script)]
