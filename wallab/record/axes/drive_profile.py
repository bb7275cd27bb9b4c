"""Axis profile: which drive is simulated."""

from typing import ClassVar

from wallab.record.axes.axis import Axis
from wallab.record.conditions import Choice
from wallab.record.driveprofile import profile


class DriveProfile(Axis):
    """A profile of drive/profiles; every value has drives of its own while the run lasts."""

    title: ClassVar[str] = "drive"

    def check(self, value: str) -> None:
        profile(value)

    def apply(self, value: str, choice: Choice) -> None:
        choice.profile = value
