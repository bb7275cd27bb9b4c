"""Axis setting.NAME: a setting of postgresql.conf."""

import re

from wallab.errors import LabError
from wallab.record.axes.axis import Axis
from wallab.record.conditions import Choice

PREFIX = "setting."


class Setting(Axis):
    """A setting, given to the server as it starts, so that it ends with it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.setting = name.removeprefix(PREFIX)
        if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", self.setting):
            raise LabError(f"“{self.setting}” is no name of a setting")

    def check(self, value: str) -> None:
        """Take any value: the server refuses what it does not know, which fails the sample."""

    def apply(self, value: str, choice: Choice) -> None:
        choice.settings[self.setting] = value
