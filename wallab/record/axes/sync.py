"""Axis sync: wal_sync_method, or no syncing at all."""

from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Choice
from wallab.record.openflags import METHODS

FSYNC_OFF = "fsync=false"
"""The value that stands for a server that never syncs."""

LACKS = "the variant has no such method"
"""Why a cell is N/A that names one."""


class Sync(Axis):
    """A wal_sync_method; how the kernel has the WAL open is read back into open_flags."""

    def check(self, value: str) -> None:
        one_of(value, (FSYNC_OFF, *METHODS))

    def apply(self, value: str, choice: Choice) -> None:
        if value == FSYNC_OFF:
            choice.settings["fsync"] = "off"
        else:
            choice.settings["wal_sync_method"] = value
