"""Axis profile: which drive is simulated."""

from typing import TYPE_CHECKING, ClassVar

from wallab.drives.simulated import profile
from wallab.record.axes.axis import Axis
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed


class DriveProfile(Axis):
    """A profile of drive/profiles; every value has drives of its own while the run lasts."""

    title: ClassVar[str] = "drive"

    def check(self, value: str) -> None:
        profile(value)

    def apply(self, value: str, conditions: Conditions) -> None:
        conditions.profile = value

    def read_back(self, conditions: Conditions, bed: "TestBed") -> str | None:
        return ", ".join(sorted({drive.profile for drive in bed.drives.values()}))
