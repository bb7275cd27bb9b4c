"""Axis file_system: the drives' file system."""

from typing import TYPE_CHECKING, ClassVar

from wallab.drives.simulated import FILE_SYSTEMS
from wallab.machine import mounts
from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed


class FileSystem(Axis):
    """A file system; every value has drives of its own while the run lasts."""

    title: ClassVar[str] = "file system"

    def check(self, value: str) -> None:
        one_of(value, tuple(FILE_SYSTEMS))

    def apply(self, value: str, conditions: Conditions) -> None:
        conditions.filesystem = value

    def lacks(self, value: str, conditions: Conditions, bed: "TestBed") -> str:
        return "" if mounts.kernel_knows(value) else f"this kernel has no {value}"

    def read_back(self, conditions: Conditions, bed: "TestBed") -> str | None:
        kinds = {mounts.kind(drive.mount_point) for drive in bed.drives.values()}
        return ", ".join(sorted(kinds))
