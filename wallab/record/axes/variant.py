"""Axis variant: which patches the server was built with."""

from typing import ClassVar

from wallab.errors import LabError
from wallab.record import series
from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Choice


class VariantAxis(Axis):
    """A variant of patches/series.toml, or a user's own."""

    title: ClassVar[str] = "patch"

    def check(self, value: str) -> None:
        one_of(value, tuple(series.names(series.read())))

    def apply(self, value: str, choice: Choice) -> None:
        choice.variant = value

    def shown(self, value: str) -> str:
        try:
            known = series.read().variant
        except LabError:
            return value
        return known[value].title if value in known else value
