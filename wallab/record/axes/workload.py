"""Axis workload: what the clients do."""

from typing import TYPE_CHECKING

from wallab.bench import workloads
from wallab.record.axes.axis import Axis
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed


class WorkloadAxis(Axis):
    """A workload on the tables of the experiment's own."""

    def check(self, value: str) -> None:
        workloads.find(value)

    def apply(self, value: str, conditions: Conditions) -> None:
        conditions.workload = value

    def lacks(self, value: str, conditions: Conditions, bed: "TestBed") -> str:
        return workloads.find(value).lacking()
