"""Axis workload: what the clients do."""

from wallab import workloads
from wallab.axis import Axis
from wallab.conditions import Conditions


class WorkloadAxis(Axis):
    """A workload on the tables of the experiment's own."""

    def check(self, value: str) -> None:
        workloads.find(value)

    def apply(self, value: str, conditions: Conditions) -> None:
        conditions.workload = value
