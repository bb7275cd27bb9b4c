"""The TPC-C-like load: its mix, its database, and the consistency conditions that it keeps."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from smallrun import run_small

from wallab import paths
from wallab.bench.workloads import tpcc
from wallab.machine import ledger, memorygroup, mounts, serversandbox
from wallab.machine.ledger import Ledger
from wallab.machine.memorygroup import MemoryGroup
from wallab.record.workloads import TERMINALS
from wallab.servers.builder import Server
from wallab.servers.cluster import Cluster

Connection = psycopg.Connection[tuple[Any, ...]]

SMALL = """
[experiment.small]
title = "small"
source = "18"
workload = "tpcc"
rows = ["archive"]
column = "warehouses"
values = ["tpm", "tpm_share", "p90_s"]
series = ["page_cache_mb", "archive_cached_mb"]
memory_mb = 256
[experiment.small.axes]
archive = ["cp", "direct_cp"]
warehouses = ["1"]
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 2048
filesystem = "ext4"
write_cache = "on-unflushed"
[experiment.small.settings]
shared_buffers = "32MB"
archive_timeout = "1s"
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
clients = 10
transactions = 3
pace = 60
warm_up_seconds = 0
rounds = 1
"""

# Condition of clause 3.3.2 -> what breaks it.
BREAKS = {
    1: "UPDATE tpcc.warehouse SET w_ytd = w_ytd + 1",
    2: "UPDATE tpcc.district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 3",
    3: "DELETE FROM tpcc.new_order WHERE no_d_id = 2 AND no_o_id = 2500",
    4: "DELETE FROM tpcc.order_line WHERE ol_d_id = 1 AND ol_o_id = 17 AND ol_number = 1",
    5: "UPDATE tpcc.orders SET o_carrier_id = NULL WHERE o_d_id = 1 AND o_id = 17",
    6: "UPDATE tpcc.orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_d_id = 1 AND o_id = 17",
    7: "UPDATE tpcc.order_line SET ol_delivery_d = NULL WHERE ol_d_id = 1 AND ol_o_id = 17",
    8: "DELETE FROM tpcc.history WHERE h_c_id = 5 AND h_c_d_id = 5",
    9: "UPDATE tpcc.district SET d_ytd = d_ytd + 1 WHERE d_id = 4",
    10: "UPDATE tpcc.customer SET c_balance = c_balance + 1 WHERE c_id = 7 AND c_d_id = 7",
    12: "UPDATE tpcc.customer SET c_ytd_payment = 0 WHERE c_id = 7 AND c_d_id = 7",
}


def test_mix_and_pace_are_the_standards() -> None:
    assert sum(kind.weight for kind in tpcc.KINDS.values()) == 100
    cycle = sum(k.weight * (k.keying + k.thinking) for k in tpcc.KINDS.values()) / 100
    assert cycle == pytest.approx(tpcc.CYCLE_S, abs=0.05)
    per_minute = TERMINALS * 60 / cycle * tpcc.KINDS["new_order"].weight / 100
    assert per_minute == pytest.approx(tpcc.IDEAL, abs=0.05)


def test_people_are_faster_by_the_pace() -> None:
    lines = tpcc.script("new_order", 60).splitlines()
    assert "\\sleep 300000 us" in lines
    assert "\\set think random_exponential(0, 2000000, 10.0)" in lines


def needs_groups() -> None:
    """Skip where memory cannot be limited."""
    if reason := memorygroup.lacking():
        pytest.skip(reason)


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_run_with_an_archive(tmp_path: Path) -> None:
    needs_groups()
    ran = run_small(SMALL, tmp_path)
    assert len(ran.samples) == 2
    for sample in ran.samples:
        assert sample.read_back["archive"] == sample.cell["archive"]
        assert sample.values["archive_failures"] == 0
        assert sample.figures is not None
        assert sample.figures.transactions == 30
        pages, archived = (sample.series[name] for name in ("page_cache_mb", "archive_cached_mb"))
        assert pages.limit is not None
        assert pages.limit == pytest.approx(256 * 1.048576)
        assert all(0 < figure <= pages.limit for figure in pages.figures)
        assert archived.limit is None
        if sample.cell["archive"] == "direct_cp":
            assert sample.values["archive_cached_mb"] == 0
            assert set(archived.figures) == {0.0}


@pytest.fixture(scope="module")
def database(servers: dict[str, Server]) -> Iterator[Connection]:
    """A connection to a server with one warehouse."""
    owned = Ledger.open("test-tpcc")
    server = owned.folder / "server"
    server.mkdir()
    mounts.bind(servers["stock"].path, server)
    home = owned.folder / "home"
    home.mkdir()
    home.chmod(0o777)
    cluster = Cluster(home / "data", home / "wal", owned, serversandbox.confinement(guest=False))
    try:
        cluster.create(server)
        cluster.start(server, {"fsync": "off", "autovacuum": "off", "max_wal_size": "4GB"})
        tpcc.Tpcc().load(server, cluster, 1)
        with cluster.connect() as connection:
            yield connection
    finally:
        cluster.stop()
        mounts.unmount(server)
        owned.close()


@pytest.mark.stack
def test_initial_population(database: Connection) -> None:
    counts = {
        "warehouse": 1, "district": 10, "customer": 30_000, "history": 30_000, "orders": 30_000,
        "new_order": 9_000, "item": 100_000, "stock": 100_000,
    }  # fmt: skip
    for table, expected in counts.items():
        row = database.execute(
            SQL("SELECT count(*) FROM tpcc.{}").format(Identifier(table))
        ).fetchone()
        assert row == (expected,), table
    assert tpcc.inconsistencies(database) == {}


@pytest.mark.stack
def test_transactions_keep_the_database_consistent(database: Connection) -> None:
    results = {name: [] for name in tpcc.KINDS}  # type: dict[str, list[Any]]
    for name, kind in tpcc.KINDS.items():
        call = kind.call.replace(":warehouses", "1").replace(":w", "1")
        for _ in range(40):
            row = database.execute(f"SELECT {call}".encode()).fetchone()
            assert row is not None
            results[name].append(row[0])
    assert results["new_order"].count(True) > 25
    assert set(results["delivery"]) == {10}
    assert all(5 <= lines <= 15 for lines in results["order_status"])
    assert tpcc.inconsistencies(database) == {}


@pytest.mark.stack
@pytest.mark.parametrize("numbers", [{1, 2, 3, 4, 5, 10}, {6, 7, 8, 9, 12}])
def test_broken_conditions_are_found(database: Connection, numbers: set[int]) -> None:
    database.execute("BEGIN")
    try:
        for number in numbers:
            database.execute(BREAKS[number].encode())
        assert numbers <= set(tpcc.inconsistencies(database))
    finally:
        database.execute("ROLLBACK")


@pytest.mark.stack
def test_memory_group_holds_what_is_put_in_and_goes() -> None:
    needs_groups()
    owned = Ledger.open("test-memory")
    try:
        group = MemoryGroup("wal-lab-test-memory", 100 << 20, owned)
        assert group.limit == 100 << 20
        child = subprocess.Popen(["sleep", "600"])
        group.add(child.pid)
        assert str(child.pid) in (group.path / "cgroup.procs").read_text().split()
        assert group.page_cache() >= 0
        # What waits for its admission is inside with all that it starts, orphans too.
        shell = ["sh", "-c", "sleep 600 & sleep 600 & echo started; exit 7"]
        parent = subprocess.Popen(
            group.waiting(shell), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        group.admit(parent)
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        assert parent.wait(60) == 7
        assert len((group.path / "cgroup.procs").read_text().split()) == 3
        group.kill()
        child.wait(60)
        parent.stdout.close()
        deadline = time.monotonic() + 60
        while group.path.exists() and time.monotonic() < deadline:
            group.close()
        assert not group.path.exists()
    finally:
        owned.close()


KILLED = """
import os, signal
from wallab.machine.ledger import Ledger
from wallab.machine.memorygroup import MemoryGroup
group = MemoryGroup("wal-lab-test-killed", 64 << 20, Ledger.open("test-group-killed"))
print(group.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.stack
def test_memory_group_is_removed_after_a_kill() -> None:
    needs_groups()
    result = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60, cwd=paths.LAB
    )
    assert result.returncode == -9, result.stderr
    path = Path(result.stdout.strip())
    assert path.is_dir()
    ledger.clear_dead()
    assert not path.exists()
