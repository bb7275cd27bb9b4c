"""pgbench's built-in scripts on its own tables."""

from pathlib import Path
from typing import TYPE_CHECKING

from wallab.bench.cluster import Cluster
from wallab.bench.pgbench import Pgbench
from wallab.bench.workloads.base import Workload, prewarm
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed
    from wallab.record.matrix import Preset


class Builtin(Workload):
    """A built-in script; the scale is pgbench's -s."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.writes = name != "select-only"

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        Pgbench(server, cluster.socket).load(scale)

    def fill_memory(self, bed: "TestBed") -> None:
        """Read pgbench's tables."""
        prewarm(bed, "public")

    def script(self, bed: "TestBed", conditions: Conditions, preset: "Preset") -> list[str]:
        return ["-b", self._name]
