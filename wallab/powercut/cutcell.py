"""Cells of a campaign: what is cut, and whether it has to keep what it acknowledged."""

import msgspec

from wallab.record.axes.sync import FSYNC_OFF


class CutCell(msgspec.Struct, frozen=True):
    """A point of the campaign: a server, its WAL drive and the file system on both drives."""

    variant: str
    write_cache: str
    sync: str
    filesystem: str
    control: str = ""
    """The name of a positive control (controls.py), which must lose; empty otherwise."""

    @property
    def name(self) -> str:
        """The cell in words."""
        words = (self.control, self.variant, self.write_cache, self.sync, self.filesystem)
        return " ".join(filter(None, words))

    @property
    def honest(self) -> bool:
        """Whether it must keep what it acknowledges: something flushes, or nothing has to."""
        return not self.control and self.sync != FSYNC_OFF and self.write_cache != "on-unflushed"
