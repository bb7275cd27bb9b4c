"""Sequential scans of a table larger than the server's buffers, each with cold caches."""

import json
from pathlib import Path
from typing import Any, ClassVar

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
        assert row is not None
        result = outcome(row[0] if isinstance(row[0], list) else json.loads(row[0]))
        drive = stage.drives["data"].reading().counters
        if drive.get("reads"):
            result.values["drive_read_kb"] = drive["sectors_read"] * SECTOR / 1024 / drive["reads"]
        return result


def outcome(explained: list[dict[str, Any]]) -> Outcome:
    """Return the figures of what EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) said of a scan."""
    plan = explained[0]["Plan"]
    total_ms = float(explained[0]["Execution Time"])
    scan_ms = float(plan["Actual Total Time"])
    blocks = float(plan["Shared Read Blocks"])
    return Outcome(
        Measured(1000 / total_ms, 1, 0, total_ms, 0.0),
        values={
            "scan_ms": scan_ms,
            "scan_mb_s": blocks * BLOCK / 1000 / scan_ms,
            "blocks_read": blocks,
            "blocks_hit": float(plan["Shared Hit Blocks"]),
            "rows": float(plan["Actual Rows"]),
        },
    )
