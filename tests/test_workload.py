"""pgbench's report is read, not guessed."""

import subprocess
from unittest import mock

import pytest

from wallab.bench import pgbench as workload
from wallab.bench.workloads.builtin import Builtin
from wallab.record.measured import Measured

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
