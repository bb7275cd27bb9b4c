"""The window of a reload: WAL that nobody has synced while others' commits are acknowledged."""

from typing import Literal

import msgspec

from wallab.record.openflags import is_direct, syncs_writes

Writer = Literal["old", "new", "receiver"]
"""With which method the WAL was written: the one before or after the reload, or by a WAL receiver
whose file was opened before."""


class Window(msgspec.Struct, frozen=True):
    """What a cut found of it."""

    writer: Writer
    written_kb: float
    """WAL, by its positions: what the long statement wrote before others' first commit; on a
    standby, what was reported as flushed to the file that was open at the reload."""
    unsynced_kb: float | None = None
    """So much of it, at least, the drive had not been sent just before the first commit was asked
    for; with a method that writes directly, what only the drive's volatile cache had counts, too.
    Not known of a standby."""
    acknowledged_kb: float | None = None
    """The same when the first of those commits had been acknowledged: 0 if it synced them."""

    @property
    def hit(self) -> bool:
        """Whether there was something to lose when a commit was acknowledged."""
        at_stake = self.written_kb if self.unsynced_kb is None else self.unsynced_kb
        return at_stake > 0


def writer(old: str, new: str) -> Literal["old", "new"]:
    """Return whose long statement is to write: if one method syncs each write, it's the other's."""
    return "new" if syncs_writes(old) and not syncs_writes(new) else "old"


def opens(old: str, new: str) -> bool:
    """Whether that statement leaves WAL in the kernel's cache, for others to sync."""
    method = old if writer(old, new) == "old" else new
    return not syncs_writes(method) and not is_direct(method)
