"""A run whose samples take no time, by the workers of a scheduler or in this process alone.

usage: .venv/bin/python -m benchmarks.fleetrun FOLDER ROUNDS ADDRESS|here [--resume]
       [--setup TEXT] [--key FILE] [--parcel FILE]
"""

import argparse
from pathlib import Path

import msgspec

from benchmarks import fleetsamples
from wallab import paths
from wallab.bench.ahead import Ahead
from wallab.bench.engine import Engine
from wallab.bench.run import Run
from wallab.bench.schedule import Turn
from wallab.files.digest import sha256
from wallab.fleet import contact
from wallab.fleet.desk import Desk
from wallab.fleet.engine import Fleet
from wallab.machine import ledger
from wallab.record import manifest, matrix
from wallab.record.experiment import Cell
from wallab.record.manifest import BedReport, Manifest
from wallab.record.samples import Sample
from wallab.record.virtualmachine import VirtualMachine

NOWHERE = VirtualMachine(
    mips=1000, memory_mb=(1,), emulator="", emulator_sha256="", turns="", firmware_sha256="",
    options=(), kernel="", kernel_sha256="", first_sha256="", root_sha256="", servers={},
    templates={},
)  # fmt: skip


class Bed:
    """Measures as the workers do."""

    def __init__(self) -> None:
        """Have no methods."""
        self.methods: dict[str, tuple[str, ...]] = {}

    def open(self) -> BedReport:
        """Make nothing."""
        return BedReport({}, {})

    def lacks(self, cell: Cell) -> str:
        """Lack nothing."""
        return ""

    def sample(
        self, cell: Cell, round_number: int, position: int, *, control: bool = False
    ) -> Sample:
        """Return what a worker would."""
        pending = (round_number, position, Turn(cell, control))
        return fleetsamples.sample_of(fleetsamples.order_of(pending))

    def close(self) -> None:
        """Undo nothing."""


def plan(rounds: int, precision: float | None = 35.0) -> Manifest:
    """Return the plan of a run of 11 turns a round, with a control; precision in percent."""
    experiment, preset = matrix.choose(matrix.read(), "thread", "smoke")
    experiment = msgspec.structs.replace(experiment, machine="virtual")
    cells = tuple(matrix.cells(experiment, preset))
    preset = msgspec.structs.replace(preset, rounds=rounds, precision=precision, control=cells[3])
    example = manifest.load(paths.LAB / "results" / "example-quick")
    return msgspec.structs.replace(
        example, preset_name="smoke", experiment=experiment, preset=preset, cells=cells, seed=5,
        drives={}, sessions=[], cost=None, templates={}, preparing_s=0.0, not_applicable=(),
        methods={}, virtual=NOWHERE,
    )  # fmt: skip


def main() -> None:
    """Measure it, or what is left of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("rounds", type=int)
    parser.add_argument("address")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--setup", default="")
    parser.add_argument("--key", type=Path)
    parser.add_argument("--parcel", type=Path)
    asked = parser.parse_args()
    bed = Bed()
    engine: Engine = Ahead(bed, 1)
    if asked.address != "here":
        files = {sha256(asked.parcel): asked.parcel} if asked.parcel else {}
        engine = Fleet(
            contact.contact(asked.address, asked.key, insecure=False),
            fleetsamples.Simulated(asked.setup), Desk(files), fleetsamples.measure,
        )  # fmt: skip
    ledger.clear_dead = list
    Run(asked.folder, plan(asked.rounds), bed, engine).measure(resumed=asked.resume)


if __name__ == "__main__":
    main()
