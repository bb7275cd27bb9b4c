"""pgbench's built-in scripts on its own tables."""

from pathlib import Path
from typing import TYPE_CHECKING

from wallab.cluster import Cluster
from wallab.conditions import Conditions
from wallab.workload import Pgbench
from wallab.workloads.base import Workload, prewarm

if TYPE_CHECKING:
    from wallab.matrix import Preset
    from wallab.testbed import TestBed


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
