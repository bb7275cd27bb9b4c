"""Axis read_ahead: how far the kernel reads ahead on the drives."""

from typing import ClassVar

from wallab.errors import LabError
from wallab.record.axes.axis import Axis, whole_number
from wallab.record.conditions import Choice

SECTOR = 512
"""Bytes, in which blockdev and the drives count."""


class ReadAhead(Axis):
    """Sectors of 512 bytes, as blockdev --setra takes them; the kernel keeps whole KiB."""

    title: ClassVar[str] = "read-ahead (sectors)"

    def check(self, value: str) -> None:
        if whole_number(value, 0) * SECTOR % 1024:
            raise LabError(f"“{value}”: expected an even number of sectors")

    def apply(self, value: str, choice: Choice) -> None:
        choice.read_ahead = int(value)
