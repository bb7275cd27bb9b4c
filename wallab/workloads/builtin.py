"""pgbench's built-in scripts on its own tables."""

from pathlib import Path
from typing import TYPE_CHECKING

from wallab.cluster import Cluster
from wallab.conditions import Conditions
from wallab.workload import Pgbench
from wallab.workloads.base import Workload

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
        """Read the tables, then their indexes, which every transaction takes, and so are kept.

        What the limit does not hold, the kernel drops while it reads.
        """
        with bed.cluster.connect() as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
            connection.execute("""
                SELECT pg_prewarm(oid, 'read') FROM (
                    SELECT oid FROM pg_class WHERE relname ^@ 'pgbench_' AND relkind IN ('r', 'i')
                    ORDER BY relkind DESC, pg_relation_size(oid) DESC) AS relations""")

    def script(self, bed: "TestBed", conditions: Conditions, preset: "Preset") -> list[str]:
        return ["-b", self._name]
