"""pgbench's built-in scripts on its own tables."""

from pathlib import Path

from wallab.cluster import Cluster
from wallab.workload import Pgbench
from wallab.workloads.base import Workload


class Builtin(Workload):
    """A built-in script; the scale is pgbench's -s."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.writes = name != "select-only"

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        Pgbench(server, cluster.socket).load(scale)

    def script(self) -> list[str]:
        return ["-b", self._name]
