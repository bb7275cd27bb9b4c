"""samples.jsonl: the raw samples of a run, appended and synced one by one."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Literal

import msgspec

from wallab import jsonfile
from wallab.drive import DriveReading
from wallab.errors import LabError, MachineError
from wallab.matrix import Cell
from wallab.walactivity import WalCounters
from wallab.workload import Measured


class CpuSeconds(msgspec.Struct, frozen=True):
    """Processor time, in user and in kernel mode, that was used while measuring."""

    server: float
    """By all of the server's processes."""
    client: float
    """By pgbench."""

    def since(self, earlier: "CpuSeconds") -> "CpuSeconds":
        """Return what was used since the earlier reading."""
        return CpuSeconds(
            round(self.server - earlier.server, 3), round(self.client - earlier.client, 3)
        )


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One measured run of a cell, or the account of why it failed."""

    cell: Cell
    round: int
    """From 1."""
    position: int
    """In the round, from 1."""
    started: str
    """UTC."""
    state: Literal["measured", "failed"]
    control: bool = False
    """Whether the cell was measured under its second name: an A/A control, and in no table."""
    error: str = ""
    figures: Measured | None = None
    wal: WalCounters | None = None
    drive: dict[str, DriveReading] = {}
    """Drive -> what it counted while measuring."""
    write_cache: dict[str, dict[str, str]] = {}
    """Drive -> its write cache and the kernel's belief, read back after measuring."""
    open_flags: dict[str, int] = {}
    """How the kernel saw the WAL segment opened -> number of server processes."""
    read_back: dict[str, str] = {}
    """Axis -> the value in force, as the machine or the server told it."""
    values: dict[str, float] = {}
    """Further figures of the workload; `wallab.values` names them."""
    phases: dict[str, float] = {}
    """Phase -> seconds it took: restore, start, read, warm_up, checkpoint, measure, count, stop."""
    warm_up: Measured | None = None
    """What pgbench reported of the warm-up, which no figure includes."""
    cpu_seconds: CpuSeconds | None = None


class SampleFile:
    """An append-only file of samples."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, sample: Sample) -> None:
        """Append the sample and wait until it is on the disk.

        MachineError if that cannot be done, as on a full disk; the file is then as it was.
        """
        with self.path.open("ab", buffering=0) as stream:
            before = stream.tell()
            line = jsonfile.dumps(sample) + b"\n"
            try:
                written = stream.write(line)
                if written != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(stream.fileno())
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, before)
                raise MachineError(
                    f"{self.path}: {error.strerror}; what was measured before is kept: make room, "
                    f"then go on with: scripts/run-matrix --resume {self.path.parent}"
                ) from None

    def read(self) -> list[Sample]:
        """Return all samples.

        A last line that a kill cut short does not count; LabError for any other damage.
        """
        if not self.path.exists():
            return []
        samples: list[Sample] = []
        content = self.path.read_bytes()
        lines = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                samples.append(jsonfile.loads(line, Sample))
            except msgspec.MsgspecError as error:
                if number == len(lines):
                    break
                raise LabError(f"{self.path}, line {number}: not a sample: {error}") from None
        return samples

    def set_aside_damaged_end(self) -> bool:
        """Move a last line that a kill cut short to a file beside; return whether there was one."""
        if not self.path.exists():
            return False
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole == len(content):
            return False
        with self.path.with_suffix(".damaged").open("ab") as aside:
            aside.write(content[whole:] + b"\n")
        os.truncate(self.path, whole)
        return True
