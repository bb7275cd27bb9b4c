"""The stage of a sample: all that is ready for it, and that its workload and gauges may use."""

from dataclasses import dataclass
from pathlib import Path

from wallab.drives.maker import Drives
from wallab.machine.memorygroup import MemoryGroup
from wallab.record.conditions import Conditions
from wallab.record.experiment import Preset
from wallab.servers.cluster import Cluster

ARCHIVE = "archive"
"""The folder for finished WAL segments, on the drive of the data."""


@dataclass(frozen=True)
class Stage:
    """The drives, the cluster and the server of one sample, and what it is made under."""

    conditions: Conditions
    preset: Preset
    drives: Drives
    cluster: Cluster
    server: Path
    """The installed tree."""
    group: MemoryGroup | None = None
    """What limits the memory of the server and of all that it starts."""
    client_cpus: int = 0
    """How many CPUs the clients have for themselves; 0: they share the server's."""
    values: tuple[str, ...] = ("tps",)
    """The figures that the experiment wants (`wallab.record.values`)."""
    series: tuple[str, ...] = ()
    """The gauges that are to be looked at over time (`wallab.record.gauges`)."""
    ready: bool = False
    """Whether the drives are mounted as they were kept, with the tables in memory."""
    seed: int | None = None
    """What the clients' random numbers follow from; None: others each time."""
    last: bool = False
    """Whether the machine ends with the sample, so that nothing has to be undone."""

    @property
    def archive(self) -> Path:
        """Where finished WAL segments are copied to: the drive of the data."""
        return self.drives["data"].mount_point / ARCHIVE

    def timing(self, on: bool) -> None:
        """Let the drives take their time, or none, where they can."""
        for drive in self.drives.values():
            drive.timing(on)
