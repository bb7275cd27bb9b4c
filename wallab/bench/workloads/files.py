"""What workloads have in common that use files instead of the server, which idles beside them."""

import shutil
from pathlib import Path

from wallab.bench.pgbench import RunFailed
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.bench.workloads.base import Workload
from wallab.errors import LabError, MachineError
from wallab.machine import process
from wallab.servers.cluster import Cluster


class FileWorkload(Workload):
    """A program that reads and writes files of its own on the drive of the data."""

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        """Load nothing: there are no tables."""

    def prepare(self, stage: Stage, runner: Runner) -> None:
        """Let the server's user, whose drive it is by now, make the folder for the files."""
        try:
            process.make_folders(folder(stage))
        except LabError as error:
            raise RunFailed(str(error)) from None

    def warm_up(self, stage: Stage, runner: Runner) -> None:
        """Do nothing: the program begins by itself with what it measures."""


def program(name: str) -> Path:
    """Return where the program is, also among those for administrators; MachineError if nowhere."""
    path = shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")
    if not path:
        raise MachineError(f"there is no {name}; on Debian, apt-get install {name}")
    return Path(path)


def folder(stage: Stage) -> Path:
    """Return the folder for the files, which is gone when the sample's content is."""
    return stage.drives["data"].mount_point / "files"
