"""pgbench's built-in scripts on its own tables."""

from pathlib import Path

from wallab.bench.pgbench import Pgbench
from wallab.bench.stage import Stage
from wallab.bench.workloads.base import Workload, prewarm
from wallab.servers.cluster import Cluster


class Builtin(Workload):
    """A built-in script; the scale is pgbench's -s."""

    def __init__(self, name: str) -> None:
        self._name = name

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        Pgbench(server, cluster).load(scale)

    def fill_memory(self, stage: Stage) -> None:
        """Read pgbench's tables."""
        prewarm(stage, "public")

    def script(self, stage: Stage) -> list[str]:
        return ["-b", self._name]
