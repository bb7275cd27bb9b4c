"""What a run asks of a bed: the one place that another kind of machine has to implement."""

from typing import Protocol

from wallab.record.experiment import Cell
from wallab.record.manifest import BedReport
from wallab.record.samples import Sample


class Bed(Protocol):
    """Drives, servers and clusters made ready on a machine, on which samples are measured."""

    @property
    def methods(self) -> dict[str, tuple[str, ...]]:
        """Server -> its values of wal_sync_method; after open."""

    def open(self) -> BedReport:
        """Make ready what all cells need, and return what was found out about the templates.

        Once. Whatever fails here is undone before the error is raised.
        """

    def lacks(self, cell: Cell) -> str:
        """Say why the cell cannot be measured here; nothing if it can; after open.

        The same for as long as the bed is open, and without measuring anything.
        """

    def sample(
        self, cell: Cell, round_number: int, position: int, *, control: bool = False
    ) -> Sample:
        """Measure the cell from a fresh copy of its template, whatever was measured before.

        A control is the cell once more in its round.

        What the cell's own server or clients fail at is a sample that says so; MachineError if
        the bed itself broke, after which nothing more can be measured on it.
        """

    def close(self) -> None:
        """Undo all that open and sample did; safe to call twice, and after a failure."""
