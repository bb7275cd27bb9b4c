"""An axis of an experiment: its values, and what they decide.

Each axis is a module of this package. What a value decides goes into a cell's `Choice`; why a
machine may lack it, and what the machine says when it is in force, is known to `wallab.bench`.
"""

import re
from typing import ClassVar

from wallab.errors import LabError
from wallab.record.conditions import Choice


class Axis:
    """An axis; this base is one without effects."""

    title: ClassVar[str] = ""
    """Its heading in a table; else its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, value: str) -> None:
        """LabError if the axis has no such value; the message says what was expected."""
        raise NotImplementedError

    def apply(self, value: str, choice: Choice) -> None:
        """Write what the value decides."""
        raise NotImplementedError

    def shown(self, value: str) -> str:
        """Return the value as a table shows it."""
        return value


def one_of(value: str, values: tuple[str, ...]) -> None:
    """LabError unless the value is one of them."""
    if value not in values:
        raise LabError(f"unknown value “{value}”; expected one of {', '.join(values)}")


def whole_number(value: str, least: int) -> int:
    """Return the value as a number; LabError unless it is one, and at least so large."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,9}", value) or int(value) < least:
        raise LabError(f"“{value}”: expected a whole number of at least {least}")
    return int(value)
