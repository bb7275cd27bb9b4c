"""Axis read_ahead: how far the kernel reads ahead on the drives."""

from typing import TYPE_CHECKING, ClassVar

from wallab.errors import LabError
from wallab.machine.loop import SECTOR
from wallab.record.axes.axis import Axis, whole_number
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed


class ReadAhead(Axis):
    """Sectors of 512 bytes, as blockdev --setra takes them; the kernel keeps whole KiB."""

    title: ClassVar[str] = "read-ahead (sectors)"

    def check(self, value: str) -> None:
        if whole_number(value, 0) * SECTOR % 1024:
            raise LabError(f"“{value}”: expected an even number of sectors")

    def apply(self, value: str, conditions: Conditions) -> None:
        conditions.read_ahead = int(value)

    def read_back(self, conditions: Conditions, bed: "TestBed") -> str | None:
        found = {str(drive.read_ahead()) for drive in bed.drives.values()}
        return ", ".join(sorted(found))
