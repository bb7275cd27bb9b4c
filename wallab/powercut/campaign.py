"""A campaign: which cells are cut how often, in which order, and when that is enough."""

import collections
import random
from collections.abc import Iterable
from pathlib import Path

import msgspec

from wallab.errors import LabError
from wallab.files import resultfolder
from wallab.powercut.controls import ATTEMPTS, CONTROLS
from wallab.powercut.cutcell import CutCell, LoadName
from wallab.powercut.cutrecord import CutRecord
from wallab.record import difference as differences
from wallab.record.axes.sync import FSYNC_OFF
from wallab.record.build import Build
from wallab.record.experiment import Experiment
from wallab.record.manifest import Machine
from wallab.record.writecache import WRITE_CACHES

FILE = "campaign.json"
CUTS = "cuts.jsonl"

FILE_SYSTEMS = ("xfs", "ext4")
"""That campaigns know; both return from a power cut by their journal alone."""

FAILURES = 3
"""How often the lab may fail with a cell before it gives the cell up."""


class Campaign(msgspec.Struct, kw_only=True):
    """campaign.json: everything about a campaign that its cuts lack."""

    name: str
    """The experiment's."""
    started: str
    seed: int
    cuts: int
    """Wanted of each cell."""
    fault: str
    cells: tuple[CutCell, ...]
    controls: tuple[CutCell, ...]
    settings: dict[str, str]
    profiles: dict[str, str]
    """Drive -> its profile."""
    source: str
    builds: dict[str, Build]
    lab: dict[str, str]
    machine: Machine
    drive_program: str = ""
    """SHA-256 of the program that simulates the drives."""
    methods: dict[str, tuple[str, ...]] = {}
    """Variant -> its values of wal_sync_method; a cell without one is N/A."""
    titles: dict[str, dict[str, str]] = {}
    """Axis -> value -> how the table writes it, where that is otherwise."""

    def applies(self, cell: CutCell) -> bool:
        """Whether the cell's variant has its methods."""
        return cell.methods <= set(self.methods[cell.variant])


def find(name: str) -> Path:
    """Return the directory of a campaign: a path, a name below results/, or the latest one."""
    return resultfolder.find(name, FILE, "campaign", "scripts/power-cut")


def load(folder: Path) -> Campaign:
    """Read campaign.json; LabError if the directory holds none, or one that is damaged."""
    campaign = resultfolder.load(folder, FILE, Campaign, "campaign of power cuts")
    for cell in (*campaign.cells, *campaign.controls):
        if cell.variant not in campaign.methods:
            raise LabError(
                f"{folder / FILE}: methods: expected those of the variant {cell.variant}"
            )
    return campaign


FIELDS = ("name", "seed", "cells", "controls", "settings", "profiles", "fault", "source")
"""That are compared as they are, by their names."""


def difference(old: Campaign, new: Campaign) -> list[str]:
    """Name what differs between a campaign and the plan to go on with it."""
    differing = differences.of_fields(old, new, {field: field for field in FIELDS})
    if {n: b.key for n, b in old.builds.items()} != {n: b.key for n, b in new.builds.items()}:
        differing.append("source, patches or compiler")
    return [
        *differing,
        *differences.of_drive_programs(old.drive_program, new.drive_program),
        *differences.of_labs(old.lab, new.lab),
        *differences.of_machines(old.machine, new.machine),
    ]


# --- cells ----------------------------------------------------------------------------------


def axes(experiment: Experiment, load: LoadName = "transactions") -> dict[str, tuple[str, ...]]:
    """Return the values that the cells of a campaign can have, those of the experiment first."""
    try:
        variants, methods = experiment.axes["variant"], experiment.axes["sync"]
    except KeyError as missing:
        raise LabError(
            f"the experiment has no axis {missing}, so there is nothing to cut"
        ) from None
    others = {"write_cache": tuple(WRITE_CACHES), "filesystem": FILE_SYSTEMS}
    if load == "transactions":
        return {"variant": tuple(variants), "sync": tuple(methods), **others}
    reloaded = tuple(method for method in methods if method != FSYNC_OFF)
    return {"variant": tuple(variants), "sync": reloaded, "to": reloaded, **others}


def choose(
    experiment: Experiment, conditions: Iterable[str], load: LoadName = "transactions"
) -> list[CutCell]:
    """Return the cells that fit all conditions, such as “sync=fdatasync,open_sync”.

    With a load that reloads there is one for every pair of methods, in either direction. LabError
    for an axis or a value that there is not, and where nothing fits.
    """
    chosen = axes(experiment, load)
    for condition in conditions:
        axis, equals, values = condition.partition("=")
        if not equals or axis not in chosen:
            raise LabError(
                f"--cells {condition}: expected AXIS=VALUE[,VALUE…] with one of {', '.join(chosen)}"
            )
        wanted = values.split(",")
        for value in wanted:
            if value not in chosen[axis]:
                raise LabError(
                    f"--cells {condition}: no {axis} “{value}”; expected one of "
                    f"{', '.join(chosen[axis])}"
                )
        chosen[axis] = tuple(value for value in chosen[axis] if value in wanted)
    cells = [
        CutCell(variant, cache, sync, filesystem, load=load, to=to)
        for variant in chosen["variant"]
        for cache in chosen["write_cache"]
        for sync in chosen["sync"]
        for to in chosen.get("to", ("",))
        for filesystem in chosen["filesystem"]
        if sync != to
    ]
    if not cells:
        raise LabError("--cells: a reload changes the method: expected sync and to that differ")
    return cells


def control_cells(variant: str) -> list[CutCell]:
    """Return the cells of the positive controls, on a variant; every variant has fdatasync."""
    return [
        CutCell(variant, control.write_cache, "fdatasync", control.filesystem, name)
        for name, control in CONTROLS.items()
    ]


# --- order ----------------------------------------------------------------------------------


class Agenda:
    """What is still to be cut: controls first, then rounds of all cells, each shuffled anew.

    A control is done when it has lost. So is a cell that may lose, since one loss says it all.
    """

    def __init__(self, campaign: Campaign, records: Iterable[CutRecord]) -> None:
        self._campaign = campaign
        self._tried: collections.Counter[CutCell] = collections.Counter()
        self._failed: collections.Counter[CutCell] = collections.Counter()
        self._lost: set[CutCell] = set()
        self._numbers: dict[CutCell, int] = {}
        self._busy: collections.Counter[CutCell] = collections.Counter()
        cells = [cell for cell in campaign.cells if campaign.applies(cell)]
        shuffler = random.Random(campaign.seed)  # noqa: S311
        rounds = [shuffler.sample(cells, len(cells)) for _ in range(campaign.cuts)]
        self._waiting = [*campaign.controls, *(cell for cells in rounds for cell in cells)]
        for record in records:
            self._count(record)

    def _wanted(self, cell: CutCell) -> int:
        """How many cuts the cell needs."""
        if cell.control:
            return 0 if cell in self._lost else ATTEMPTS
        if cell in self._lost and not cell.honest:
            return 0
        return self._campaign.cuts

    def _needs(self, cell: CutCell) -> bool:
        if self._failed[cell] >= FAILURES:
            return False
        if self._busy[cell] and not cell.honest:
            return False  # what is under way may say it all
        return self._tried[cell] + self._busy[cell] < self._wanted(cell)

    def next(self) -> tuple[CutCell, int] | None:
        """Return a cell to cut and the number of the cut; None if there is nothing at present."""
        for cell in self._waiting:
            if self._needs(cell):
                self._busy[cell] += 1
                self._numbers[cell] = number = self._numbers.get(cell, 0) + 1
                if not cell.control:
                    self._waiting.remove(cell)
                return cell, number
        return None

    def finish(self, record: CutRecord) -> None:
        """Take note of a cut that `next` gave out."""
        self._busy[record.cell] -= 1
        self._count(record)
        if not record.cell.control and self._needs(record.cell):
            self._waiting.append(record.cell)

    def _count(self, record: CutRecord) -> None:
        cell = record.cell
        self._numbers[cell] = max(self._numbers.get(cell, 0), record.number)
        if record.category == "failed":
            self._failed[cell] += 1
            return
        self._tried[cell] += 1
        if record.category != "safe":
            self._lost.add(cell)

    def given_up(self) -> list[CutCell]:
        """Return the cells with which the lab failed too often."""
        return [cell for cell, failures in self._failed.items() if failures >= FAILURES]

    @property
    def done(self) -> int:
        """Cuts that have a verdict."""
        return sum(self._tried.values())

    @property
    def left(self) -> int:
        """Cuts that are still to come, if every control loses at once."""
        total = 0
        for cell in dict.fromkeys(self._waiting):
            if self._needs(cell) or self._busy[cell]:
                missing = self._wanted(cell) - self._tried[cell]
                total += 1 if cell.control or not cell.honest else missing
        return total
