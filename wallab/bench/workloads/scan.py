"""Sequential scans of a table larger than the server's buffers, each with cold caches."""

from pathlib import Path
from typing import ClassVar

import msgspec
import psycopg

from wallab.bench.pgbench import RunFailed
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.bench.workloads.base import Outcome, Workload
from wallab.record.axes.read_ahead import SECTOR
from wallab.record.measured import Measured
from wallab.record.workloads import SCAN_ROWS
from wallab.servers.cluster import Cluster

BLOCK = 8192
"""Bytes of a block, as PostgreSQL is configured by default."""

# Three columns and 45 bytes a row by the planner's estimate, as in the source. The rows are in the
# same places whoever loads them.
_LOAD = (
    "CREATE TABLE tbl_cost_align (id int, info text, crt_time timestamp)",
    "INSERT INTO tbl_cost_align SELECT i, md5(i::text), timestamp '2013-11-26 08:39:38'"
    " FROM generate_series(1, {rows}) i",
    "VACUUM (FREEZE, ANALYZE) tbl_cost_align",
)

# One process reads, as in the source, whose server had no parallel queries.
_SCAN = (
    "SET max_parallel_workers_per_gather = 0",
    "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM tbl_cost_align",
)


class Node(msgspec.Struct):
    """What EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) tells of a plan's node; ms and blocks."""

    time: float = msgspec.field(name="Actual Total Time")
    rows: float = msgspec.field(name="Actual Rows")
    hit: float = msgspec.field(name="Shared Hit Blocks")
    read: float = msgspec.field(name="Shared Read Blocks")


class Plan(msgspec.Struct):
    """What it tells of a statement; ms."""

    node: Node = msgspec.field(name="Plan")
    time: float = msgspec.field(name="Execution Time")


class Scan(Workload):
    """A sequential scan; its time is that of the plan's only node, as the source gave it."""

    cold: ClassVar[bool] = True

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        with cluster.connect() as connection:
            for command in _LOAD:
                connection.execute(command.format(rows=scale * SCAN_ROWS).encode())

    def warm_up(self, stage: Stage, runner: Runner) -> None:
        """Do nothing: every scan begins cold."""

    def measure(self, stage: Stage, runner: Runner) -> Outcome:
        try:
            with stage.cluster.connect() as connection:
                setting, explain = _SCAN
                connection.execute(setting.encode())
                row = connection.execute(explain.encode()).fetchone()
        except psycopg.Error as error:
            raise RunFailed(f"the scan failed: {error}") from error
        result = outcome(row[0] if row else None)
        drive = stage.drives["data"].reading().counters
        if drive.get("reads"):
            result.values["drive_read_kb"] = drive["sectors_read"] * SECTOR / 1024 / drive["reads"]
        return result


def outcome(explained: object) -> Outcome:
    """Return the figures of what EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) said of a scan.

    RunFailed where the server, which may be a patched one, said something else.
    """
    try:
        (plan,) = msgspec.convert(explained, list[Plan])
    except ValueError as error:
        raise RunFailed(f"EXPLAIN of the scan says what cannot be read: {error}") from None
    if plan.time <= 0 or plan.node.time <= 0:
        raise RunFailed("EXPLAIN of the scan says that it took no time")
    return Outcome(
        Measured(1000 / plan.time, 1, 0, plan.time, 0.0),
        values={
            "scan_ms": plan.node.time,
            "scan_mb_s": plan.node.read * BLOCK / 1000 / plan.node.time,
            "blocks_read": plan.node.read,
            "blocks_hit": plan.node.hit,
            "rows": plan.node.rows,
        },
    )
