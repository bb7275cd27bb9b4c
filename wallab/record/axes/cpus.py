"""Axis cpus: how many CPUs the server may use, and the clients."""

from typing import ClassVar

from wallab.record.axes.axis import Axis, whole_number
from wallab.record.conditions import Choice


class Cpus(Axis):
    """The first so many CPUs of those that the lab may use; processes are pinned as they start.

    The clients have as many others, if the machine has enough for every cell; else they share.

    An affinity belongs to a process, and so ends with it, however it ends.
    """

    title: ClassVar[str] = "CPUs"

    def check(self, value: str) -> None:
        whole_number(value, 1)

    def apply(self, value: str, choice: Choice) -> None:
        choice.cpus = int(value)
