"""Axis setting.NAME: a setting of postgresql.conf."""

import re
from typing import TYPE_CHECKING

from wallab.bench import cluster
from wallab.errors import LabError
from wallab.record.axes.axis import Axis
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed

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

    def apply(self, value: str, conditions: Conditions) -> None:
        conditions.settings[self.setting] = value

    def lacks(self, value: str, conditions: Conditions, bed: "TestBed") -> str:
        if "." in self.setting or cluster.has_setting(bed.server(conditions), self.setting, value):
            return ""
        return f"the server does not take {self.setting} = {value}"

    def read_back(self, conditions: Conditions, bed: "TestBed") -> str | None:
        """Return the value as asked if the server holds just that, in whatever unit it shows."""
        with bed.cluster.connect() as connection:
            row = connection.execute(
                "SELECT setting, current_setting(name) FROM pg_settings WHERE name = %s",
                [self.setting],
            ).fetchone()
        if row is None:
            return ""
        asked = conditions.settings[self.setting]
        return asked if asked in row else str(row[1])
