"""pgbench's built-in scripts on its own tables."""

from pathlib import Path

from wallab.bench.pgbench import Pgbench
from wallab.bench.runner import Runner
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

    def prepare(self, stage: Stage, runner: Runner) -> None:
        """Write the script with a rest before it, where the clients are to have one."""
        if stage.conditions.think_ms:
            script = Pgbench(stage.server, stage.cluster).builtin(self._name)
            file = _resting(stage)
            file.write_text(f"\\sleep {stage.conditions.think_ms} ms\n{script}")
            file.chmod(0o644)

    def script(self, stage: Stage) -> list[str]:
        if stage.conditions.think_ms:
            # For scripts of its own alone pgbench looks the scale up.
            return ["-s", str(stage.conditions.scale), "-f", str(_resting(stage))]
        return ["-b", self._name]


def _resting(stage: Stage) -> Path:
    """Return where the script is that begins with a rest: the clients may read there."""
    return stage.cluster.log.with_name("resting.sql")
