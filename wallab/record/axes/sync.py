"""Axis sync: wal_sync_method, or no syncing at all."""

from typing import TYPE_CHECKING

from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Conditions
from wallab.record.openflags import METHODS

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed

FSYNC_OFF = "fsync=false"
"""The value that stands for a server that never syncs."""

LACKS = "the variant has no such method"


class Sync(Axis):
    """A wal_sync_method; how the kernel has the WAL open is read back into open_flags."""

    def check(self, value: str) -> None:
        one_of(value, (FSYNC_OFF, *METHODS))

    def apply(self, value: str, conditions: Conditions) -> None:
        if value == FSYNC_OFF:
            conditions.settings["fsync"] = "off"
        else:
            conditions.settings["wal_sync_method"] = value

    def lacks(self, value: str, conditions: Conditions, bed: "TestBed") -> str:
        if value == FSYNC_OFF or value in bed.methods[conditions.server]:
            return ""
        return LACKS
