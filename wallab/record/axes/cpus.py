"""Axis cpus: how many CPUs the server may use, and the clients."""

import os
from typing import TYPE_CHECKING, ClassVar

from wallab.record.axes.axis import Axis, whole_number
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed


class Cpus(Axis):
    """The first so many CPUs of those that the lab may use; processes are pinned as they start.

    The clients have as many others, if the machine has enough for every cell; else they share.

    An affinity belongs to a process, and so ends with it, however it ends.
    """

    title: ClassVar[str] = "CPUs"

    def check(self, value: str) -> None:
        whole_number(value, 1)

    def apply(self, value: str, conditions: Conditions) -> None:
        conditions.cpus = int(value)

    def lacks(self, value: str, conditions: Conditions, bed: "TestBed") -> str:
        have = len(os.sched_getaffinity(0))
        return "" if int(value) <= have else f"this machine has {have} CPUs"

    def read_back(self, conditions: Conditions, bed: "TestBed") -> str | None:
        return str(len(os.sched_getaffinity(bed.cluster.postmaster())))
