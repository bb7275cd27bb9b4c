"""Axis file_system: the drives' file system."""

from typing import ClassVar

from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Choice
from wallab.record.filesystem import FILE_SYSTEMS


class FileSystem(Axis):
    """A file system; every value has drives of its own while the run lasts."""

    title: ClassVar[str] = "file system"

    def check(self, value: str) -> None:
        one_of(value, FILE_SYSTEMS)

    def apply(self, value: str, choice: Choice) -> None:
        choice.filesystem = value
