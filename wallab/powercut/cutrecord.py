"""cuts.jsonl: one line for each cut, appended and synced: the one truth of a campaign."""

from pathlib import Path
from typing import Literal

import msgspec

from wallab.files.linefile import LineFile
from wallab.powercut.cutcell import CutCell
from wallab.powercut.oracle import Category
from wallab.powercut.window import Window


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

    cell: CutCell
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
    window: Window | None = None
    """Of a cell with a reload, unless the lab failed before."""
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


class RecordFile(LineFile[CutRecord]):
    """cuts.jsonl."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, CutRecord, "cut", "scripts/power-cut")
