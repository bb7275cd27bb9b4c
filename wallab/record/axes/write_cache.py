"""Axis write_cache: the write cache of the drives that fix none."""

from typing import ClassVar

import msgspec

from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Choice
from wallab.record.writecache import WRITE_CACHES, WriteCache


class WriteCacheAxis(Axis):
    """A state of `record.writecache`; read back drive by drive, into the sample's write_cache."""

    title: ClassVar[str] = "writeback cache"

    def check(self, value: str) -> None:
        one_of(value, (*WRITE_CACHES, "as-is"))

    def apply(self, value: str, choice: Choice) -> None:
        choice.write_cache = msgspec.convert(value, WriteCache)
