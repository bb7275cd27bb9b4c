"""Axis barriers: whether the file system makes the drive flush its cache."""

from typing import TYPE_CHECKING, ClassVar

from wallab.drives.simulated import PROTECTED
from wallab.machine import mounts
from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed

_OPTION = {"ext4": "nobarrier", "btrfs": "nobarrier"}
"""The mount option that turns them off. XFS has had none since Linux 4.19: there the kernel is told
that the drive's cache writes through, so that nobody sends flushes."""


class Barriers(Axis):
    """on or off, with the drives' caches on, or kept by their batteries, in either case."""

    last: ClassVar[bool] = True

    def check(self, value: str) -> None:
        one_of(value, ("on", "off"))

    def apply(self, value: str, conditions: Conditions) -> None:
        flushed, unflushed = (
            ("battery-flushed", "battery")
            if conditions.profile in PROTECTED
            else ("on", "on-unflushed")
        )
        conditions.write_cache = flushed
        if value == "off":
            if option := _OPTION.get(conditions.filesystem or ""):
                conditions.mount_options = (*conditions.mount_options, option)
            else:
                conditions.write_cache = unflushed

    def read_back(self, conditions: Conditions, bed: "TestBed") -> str | None:
        """Return on if the kernel flushes any of the drives."""
        for drive in bed.drives.values():
            flushes = drive.write_cache()["kernel"] == "write back"
            options = mounts.options(drive.mount_point)
            if flushes and not {"nobarrier", "barrier=0"} & set(options):
                return "on"
        return "off"
