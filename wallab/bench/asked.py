"""What the cells of a run ask of a bed, whichever machine it is on."""

from collections.abc import Collection, Iterable, Iterator

from wallab.bench import workloads
from wallab.errors import LabError
from wallab.record import matrix
from wallab.record.conditions import Conditions
from wallab.record.experiment import Cell, Experiment, Preset

Key = tuple[str, ...]


def key(cell: Cell) -> Key:
    """Return what tells the cells of an experiment apart."""
    return tuple(cell.values())


class Asked:
    """The conditions of each cell."""

    def __init__(
        self,
        experiment: Experiment,
        preset: Preset,
        cells: Iterable[Cell],
        servers: Collection[str],
    ) -> None:
        """LabError for a cell whose server is none of the installed ones, by their names."""
        self._conditions = {
            key(cell): matrix.conditions(experiment, preset, cell) for cell in cells
        }
        wanted = {conditions.server for conditions in self}
        if missing := sorted(wanted - set(servers)):
            raise LabError(f"no server is installed for {', '.join(missing)}")

    def of(self, cell: Cell) -> Conditions:
        """Return what a sample of the cell is made under."""
        return self._conditions[key(cell)]

    def __iter__(self) -> Iterator[Conditions]:
        """Yield the conditions, in the order of the cells."""
        return iter(self._conditions.values())

    def packages(self) -> dict[str, str]:
        """Return the Debian packages that the workloads run programs of, and a program of each."""
        packages: dict[str, str] = {}
        for name in sorted({conditions.workload for conditions in self}):
            packages |= workloads.find(name).packages
        return packages
