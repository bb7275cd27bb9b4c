"""Axis archive: by what finished WAL segments are copied to the archive."""

from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Choice


class Archive(Axis):
    """off, cp, or the lab's own direct_cp, which goes past the page cache."""

    def check(self, value: str) -> None:
        one_of(value, ("off", "cp", "direct_cp"))

    def apply(self, value: str, choice: Choice) -> None:
        choice.archive = None if value == "off" else value
