"""Cells of a campaign: what is cut, and whether it has to keep what it acknowledged."""

from typing import Literal

import msgspec

from wallab.record.axes.sync import FSYNC_OFF

LoadName = Literal["transactions", "reload", "standby"]
"""What goes on when the power fails: transactions alone; or a reload changes wal_sync_method in
their midst, on the server that acknowledges them, or on its standby."""


class CutCell(msgspec.Struct, frozen=True):
    """A point of the campaign: a server, its WAL drive and the file system on both drives."""

    variant: str
    write_cache: str
    sync: str
    """The wal_sync_method, or fsync=false; before the reload if there is one."""
    filesystem: str
    control: str = ""
    """The name of a positive control (controls.py), which must lose; empty otherwise."""
    load: LoadName = "transactions"
    to: str = ""
    """The wal_sync_method after the reload; empty without one."""

    @property
    def name(self) -> str:
        """The cell in words."""
        sync = f"{self.sync}-to-{self.to}" if self.to else self.sync
        load = self.load if self.load == "standby" else ""
        words = (self.control, load, self.variant, self.write_cache, sync, self.filesystem)
        return " ".join(filter(None, words))

    @property
    def methods(self) -> set[str]:
        """The values of wal_sync_method that its server needs."""
        return {self.sync, self.to} - {"", FSYNC_OFF}

    @property
    def honest(self) -> bool:
        """Whether it must keep what it acknowledges: something flushes, or nothing has to."""
        return not self.control and self.sync != FSYNC_OFF and self.write_cache != "on-unflushed"
