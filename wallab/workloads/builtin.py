"""pgbench's built-in scripts on its own tables."""

from wallab.workload import Pgbench
from wallab.workloads.base import Workload


class Builtin(Workload):
    """A built-in script; the scale is pgbench's -s."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.writes = name != "select-only"

    def load(self, pgbench: Pgbench, scale: int) -> None:
        pgbench.load(scale)

    def script(self) -> list[str]:
        return ["-b", self._name]
