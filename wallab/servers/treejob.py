"""What is done to a build's tree in its sandbox: `python -m wallab.servers.treejob JOB`, in JSON.

The lab itself never goes into a tree that a build can write: any name there may be a link. This
program is the lab's, but it runs as the build's user and where the build does.
"""

import os
import sys
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.machine import sandbox
from wallab.servers import source
from wallab.servers.patches import Patch
from wallab.servers.patching import WorkTree


class Unpack(msgspec.Struct, frozen=True, tag=True):
    """Unpack the archive on standard input at the target, which must not exist."""

    name: str
    """Of the source, for errors."""
    target: Path

    def do(self) -> None:
        """Do it; what was begun does not stand at the target."""
        partial = self.target.with_name(f"{self.target.name}.partial")
        source.extract(sys.stdin.buffer, self.name, partial)
        partial.rename(self.target)


class Apply(msgspec.Struct, frozen=True, tag=True):
    """Bring the work tree to these patches."""

    tree: Path
    tree_name: str
    patches: list[Patch]

    def do(self) -> None:
        """Do it, or leave the tree without any; print what was left out."""
        for line in WorkTree(self.tree).apply(self.patches, self.tree_name):
            print(line)


Job = Unpack | Apply


class TreeTask(msgspec.Struct, frozen=True):
    """The command line: a job of either kind."""

    job: Job


def command(job: Job) -> list[str]:
    """Return the command that does the job; it exits as the lab's commands do, with the reason."""
    return [sys.executable, "-P", "-m", __name__, jsonfile.dumps(TreeTask(job)).decode()]


def variables() -> dict[str, str]:
    """Return what the command has to find in its environment: the lab and its packages."""
    return {
        "PYTHONPATH": os.pathsep.join(map(str, (paths.LAB, sandbox.PACKAGES))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def main() -> int:
    """Do the job on the command line."""
    try:
        jsonfile.loads(sys.argv[1], TreeTask).job.do()
    except LabError as error:
        print(error)
        return error.exit_code
    except OSError as error:
        print(error)
        return MachineError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
