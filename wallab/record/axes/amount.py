"""Axes scale, warehouses and clients: how large the database is, and how many ask it."""

from wallab.record.axes.axis import Axis, whole_number
from wallab.record.conditions import Choice
from wallab.record.workloads import TERMINALS


class Scale(Axis):
    """The size of the template, in the workload's unit; each value has a template of its own."""

    def check(self, value: str) -> None:
        whole_number(value, 1)

    def apply(self, value: str, choice: Choice) -> None:
        choice.scale = int(value)


class Warehouses(Axis):
    """TPC-C's scale, which also says how many terminals there are."""

    def check(self, value: str) -> None:
        whole_number(value, 1)

    def apply(self, value: str, choice: Choice) -> None:
        choice.scale = int(value)
        choice.clients = TERMINALS * int(value)


class Clients(Axis):
    """How many clients there are at once."""

    def check(self, value: str) -> None:
        whole_number(value, 1)

    def apply(self, value: str, choice: Choice) -> None:
        choice.clients = int(value)
