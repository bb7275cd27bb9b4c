"""Rows by the thousand on pgbench's own tables: WAL in large commits, as loading data makes it."""

from pathlib import Path

from wallab.bench.pgbench import Pgbench
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.bench.workloads.base import Workload, prewarm
from wallab.servers.cluster import Cluster

ROWS = 1000
"""Of a transaction; some 80 kB of WAL."""

SCRIPT = f"""\\set bid random(1, 1 * :scale)
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
    SELECT number, :bid, number, 0, CURRENT_TIMESTAMP FROM generate_series(1, {ROWS}) AS number;
"""  # noqa: S608 - nothing in it comes from outside


class BulkInsert(Workload):
    """Each transaction appends rows to pgbench's history, which has no index."""

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        Pgbench(server, cluster).load(scale)

    def fill_memory(self, stage: Stage) -> None:
        """Read pgbench's tables."""
        prewarm(stage, "public")

    def prepare(self, stage: Stage, runner: Runner) -> None:
        """Write the script where the clients may read it."""
        file = _file(stage)
        file.write_text(SCRIPT)
        file.chmod(0o644)

    def script(self, stage: Stage) -> list[str]:
        return ["-s", str(stage.conditions.scale), "-f", str(_file(stage))]


def _file(stage: Stage) -> Path:
    return stage.cluster.log.with_name("bulk.sql")
