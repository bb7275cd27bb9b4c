"""An axis of an experiment: its values, and what they do to a sample.

Each axis is a module of this package. What it decides it writes into the sample's `Conditions`,
which the test bed carries out and takes back; what the machine then says is read back into the
sample, so that a value that did not take is seen.
"""

import re
from typing import TYPE_CHECKING, ClassVar

from wallab.errors import LabError
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed


class Axis:
    """An axis; this base is one without effects."""

    title: ClassVar[str] = ""
    """Its heading in a table; else its name."""

    last: ClassVar[bool] = False
    """Whether what it decides depends on the other axes, so that it is applied after them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, value: str) -> None:
        """LabError if the axis has no such value; the message says what was expected."""
        raise NotImplementedError

    def apply(self, value: str, conditions: Conditions) -> None:
        """Write what the value decides."""
        raise NotImplementedError

    def lacks(self, value: str, conditions: Conditions, bed: "TestBed") -> str:
        """Say why the value cannot be had here, so that the cell is N/A; nothing if it can."""
        return ""

    def read_back(self, conditions: Conditions, bed: "TestBed") -> str | None:
        """Ask the machine, while the server runs, for the value that is in force.

        None where the sample tells by other fields (variant, write_cache, sync).
        """
        return None

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
