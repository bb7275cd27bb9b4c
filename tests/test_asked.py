"""What cells ask of a bed: checked alike for both machines."""

from pathlib import Path

import pytest

from wallab.bench.asked import Asked
from wallab.bench.realbed import RealBed
from wallab.errors import LabError
from wallab.machine.confinement import Confinement
from wallab.record import matrix


def test_every_cell_has_its_conditions() -> None:
    experiment, preset = matrix.choose(matrix.read(), "thread", "smoke")
    cells = matrix.cells(experiment, preset)
    asked = Asked(experiment, preset, cells, {"direct-io", "gather-write", "both"})
    assert list(asked) == [matrix.conditions(experiment, preset, cell) for cell in cells]
    assert asked.of(cells[1]) == matrix.conditions(experiment, preset, cells[1])


def test_a_server_that_is_missing_is_named_before_anything_is_made() -> None:
    experiment, preset = matrix.choose(matrix.read(), "thread", "smoke")
    cells = tuple(matrix.cells(experiment, preset))
    with pytest.raises(LabError, match="no server is installed for direct-io, gather-write"):
        RealBed(experiment, preset, cells, {"both": Path("/nonexistent")}, Confinement())


def test_workloads_name_their_packages() -> None:
    experiment, preset = matrix.choose(matrix.read(), "file-systems", "quick")
    cells = matrix.cells(experiment, preset)
    packages = Asked(experiment, preset, cells, {"stock"}).packages()
    assert packages == {"bonnie++": "bonnie++", "sysbench": "sysbench"}
