"""Axis barriers: whether the file system makes the drive flush its cache."""

from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Choice


class Barriers(Axis):
    """on or off, with the drives' caches on, or kept by their batteries, in either case."""

    def check(self, value: str) -> None:
        one_of(value, ("on", "off"))

    def apply(self, value: str, choice: Choice) -> None:
        choice.barriers = value == "on"
