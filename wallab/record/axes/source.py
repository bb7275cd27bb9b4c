"""Axis source: which PostgreSQL is measured."""

from typing import ClassVar

from wallab.errors import LabError
from wallab.record.axes.axis import Axis
from wallab.record.conditions import Choice


class SourceAxis(Axis):
    """A source as scripts/build-variant takes it: a major version, directory, tarball or ref."""

    title: ClassVar[str] = "PostgreSQL"

    def check(self, value: str) -> None:
        if not value.strip():
            raise LabError("expected the name of a source")

    def apply(self, value: str, choice: Choice) -> None:
        choice.source = value
