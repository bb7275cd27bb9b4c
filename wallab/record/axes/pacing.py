"""Axes rate and think: how often transactions begin, and how long a client rests before each."""

from typing import ClassVar

from wallab.record.axes.axis import Axis, whole_number
from wallab.record.conditions import Choice

UNLIMITED = "unlimited"
"""A rate: every client begins its next transaction as soon as it may."""


class Rate(Axis):
    """Transactions a second that all clients together begin, at random times (pgbench -R).

    Latency then counts from the time that a transaction was to begin at.
    """

    title: ClassVar[str] = "rate, tx/s"

    def check(self, value: str) -> None:
        if value != UNLIMITED:
            whole_number(value, 1)

    def apply(self, value: str, choice: Choice) -> None:
        choice.rate = None if value == UNLIMITED else int(value)


class Think(Axis):
    """Milliseconds that each client rests before a transaction, and that no latency has."""

    title: ClassVar[str] = "think time, ms"

    def check(self, value: str) -> None:
        whole_number(value, 0)

    def apply(self, value: str, choice: Choice) -> None:
        choice.think_ms = int(value)
