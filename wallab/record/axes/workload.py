"""Axis workload: what the clients do."""

from wallab.record import workloads
from wallab.record.axes.axis import Axis
from wallab.record.conditions import Choice


class WorkloadAxis(Axis):
    """A workload on the tables of the experiment's own."""

    def check(self, value: str) -> None:
        workloads.find(value)

    def apply(self, value: str, choice: Choice) -> None:
        choice.workload = value
