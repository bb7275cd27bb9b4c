"""cuts.jsonl: one line for each cut, appended and synced: the one truth of a campaign."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from wallab import jsonfile
from wallab.errors import LabError
from wallab.powercut.cell import Cell
from wallab.powercut.oracle import Category


class Moment(msgspec.Struct, frozen=True):
    """When and how the power went, as the seed chose it."""

    after_s: float
    """Since every client had had its first promise."""
    keep: float
    """Share of each volatile cache that reaches the media all the same."""
    wal_paused: bool
    """Whether the WAL drive left its cache alone as long as it could."""
    data_paused: bool
    checkpoint_s: float | None
    """When a checkpoint was asked for, if one was; like after_s."""
    to_segment_end: int
    """Bytes from where the load's WAL began to the end of that segment."""


class CutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One cut and its verdict, or the account of why there is none."""

    cell: Cell
    number: int
    """Of the cell's cuts, from 1."""
    started: str
    """UTC."""
    category: Category | Literal["failed"]
    """failed: the lab's trouble, not the server's; it counts for nothing."""
    fault: str = "power"
    promised: int = 0
    lost: int = 0
    oldest_ms: float = 0.0
    account: str = ""
    """The shortest account of a loss."""
    details: tuple[str, ...] = ()
    moment: Moment | None = None
    lost_kb: float = 0.0
    """What the WAL drive's cache lost."""
    phases: dict[str, float] = {}
    """Phase -> seconds."""
    trace: str = ""
    """The WAL drive's trace, if it was kept: a file beside."""

    @property
    def seconds(self) -> float:
        """From load to verdict."""
        return sum(self.phases.values())


class RecordFile:
    """An append-only file of cuts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: CutRecord) -> None:
        """Append the record and wait until it is on the disk."""
        with self.path.open("ab") as stream:
            stream.write(jsonfile.dumps(record) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def read(self) -> list[CutRecord]:
        """Return all records; a last line that a kill cut short does not count.

        LabError for any other damage.
        """
        if not self.path.exists():
            return []
        records = []
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                records.append(jsonfile.loads(line, CutRecord))
            except msgspec.MsgspecError as error:
                if number == len(lines):
                    break
                raise LabError(f"{self.path}, line {number}: not a cut: {error}") from None
        return records

    def drop_damaged_end(self) -> bool:
        """Remove a last line that a kill cut short; return whether there was one."""
        if not self.path.exists():
            return False
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
        return whole < len(content)
