"""Axis archive: by what finished WAL segments are copied to the archive."""

from typing import TYPE_CHECKING

from wallab.record.axes.axis import Axis, one_of
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed


class Archive(Axis):
    """off, cp, or the lab's own direct_cp, which goes past the page cache."""

    def check(self, value: str) -> None:
        one_of(value, ("off", "cp", "direct_cp"))

    def apply(self, value: str, conditions: Conditions) -> None:
        conditions.archive = None if value == "off" else value

    def read_back(self, conditions: Conditions, bed: "TestBed") -> str | None:
        with bed.cluster.connect() as connection:
            row = connection.execute(
                "SELECT current_setting('archive_mode'), current_setting('archive_command')"
            ).fetchone()
        assert row is not None
        mode, command = row
        return str(command).split(maxsplit=1)[0].rsplit("/")[-1] if mode == "on" else "off"
