"""manifest.json: everything about a run that can move its numbers, and that its samples lack."""

import re
from pathlib import Path
from typing import Any

import msgspec

from wallab.errors import LabError
from wallab.files import resultfolder
from wallab.record import axes, matrix
from wallab.record.build import Build
from wallab.record.cost import Cost, Session
from wallab.record.experiment import Cell, Experiment, Preset
from wallab.record.number import Count, Seconds
from wallab.record.virtualmachine import VirtualMachine

FILE = "manifest.json"


class Machine(msgspec.Struct, frozen=True):
    """The machine that measured."""

    system: str
    kernel: str
    cpu: str
    cpus: int
    memory_kb: Count
    governor: str
    mitigations: dict[str, str]
    python: str
    tuning: dict[str, str] = {}
    """Settings of the kernel that can move a number."""
    sandbox: str = ""
    """What servers and their clients ran in: bwrap, container, or none; nothing where it was not
    noted, or where they run in a machine of their own."""


class BedReport(msgspec.Struct, frozen=True):
    """What was found out while a bed was made ready."""

    templates: dict[str, dict[str, Any]]
    mounts: dict[str, list[str]]
    machine: Machine | None = None
    """What the samples are measured on, if not this machine."""
    template_memory: dict[str, str] = {}
    """Of a virtual machine: template -> sha256 of its memory."""


class NotApplicable(msgspec.Struct, frozen=True):
    """A cell that is N/A, and why."""

    cell: Cell
    reason: str


class Manifest(msgspec.Struct):
    """manifest.json."""

    name: str
    preset_name: str
    started: str
    seed: int
    lab: dict[str, str]
    """Version and git state of the lab."""
    machine: Machine
    experiment: Experiment
    preset: Preset
    cells: tuple[Cell, ...]
    builds: dict[str, Build]
    """Variant, or source/variant where the source is an axis -> its server."""
    methods: dict[str, tuple[str, ...]]
    """As builds -> its values of wal_sync_method; a cell without one is N/A."""
    drives: dict[str, dict[str, str]]
    """Drive -> the parameters of its profile."""
    titles: dict[str, dict[str, str]] = {}
    """Axis -> value -> how tables write it, where that is otherwise."""
    direct: dict[str, tuple[str, ...]] = {}
    """Variant -> the methods that take O_DIRECT by it, and would not by their name."""
    drive_program: str = ""
    """SHA-256 of the program that simulates the drives; empty for real ones."""
    not_applicable: tuple[NotApplicable, ...] = ()
    """Cells that this machine or their server cannot do; beside those that lack their method."""
    templates: dict[str, dict[str, Any]] = {}
    """What was found out about each cluster that cells start from."""
    template_memory: dict[str, str] = {}
    """Of a virtual machine: template -> sha256 of its memory."""
    mounts: dict[str, list[str]] = {}
    """Drive -> its file system and the options of its mount, as the kernel tells them."""
    preparing_s: Seconds = 0.0
    """What making the drives and the templates took, all sessions together, in seconds."""
    sessions: list[Session] = []
    virtual: VirtualMachine | None = None
    """None: real time, on a real machine."""
    cost: Cost | None = None
    """Brought up to date after each round."""


def find(name: str) -> Path:
    """Return the directory of a run: a path, a name below results/, or the latest one."""
    return resultfolder.find(name, FILE, "run", "scripts/run-matrix")


def load(run: Path) -> Manifest:
    """Read the manifest of a run; LabError if that is no run, or damaged."""
    manifest = resultfolder.load(run, FILE, Manifest, "run of the lab")
    try:
        _check(manifest)
    except LabError as error:
        raise LabError(f"{run / FILE}: {error}") from None
    return manifest


def _check(manifest: Manifest) -> None:
    """Check what the types cannot say; the LabError begins with the place.

    Variants and profiles of drives that are gone by now are as good as those that there are.
    """
    experiment = manifest.experiment
    for name, values in experiment.axes.items():
        try:
            axis = axes.find(name)
            for value in values if name not in {"variant", "profile"} else ():
                axis.check(value)
        except LabError as error:
            raise LabError(f"experiment.axes.{name}: {error}") from None
    try:
        matrix.check_layout(experiment)
    except LabError as error:
        raise LabError(f"experiment.{error}") from None
    if not manifest.cells:
        raise LabError("cells: expected at least one")
    for place, cell in enumerate(manifest.cells):
        _check_cell(f"cells[{place}]", cell, experiment)
    for place, lacking in enumerate(manifest.not_applicable):
        _check_cell(f"not_applicable[{place}].cell", lacking.cell, experiment)
    if manifest.preset.control is not None:
        _check_cell("preset.control", manifest.preset.control, experiment)
    for drive, parameters in manifest.drives.items():
        if not re.fullmatch(r"[1-9][0-9]{0,8}", units := parameters.get("units", "1")):
            raise LabError(f"drives.{drive}.units: expected a number from 1, got “{units}”")


def _check_cell(place: str, cell: Cell, experiment: Experiment) -> None:
    if tuple(cell) != tuple(experiment.axes):
        raise LabError(f"{place}: expected a value each of {', '.join(experiment.axes)}")
    for axis, value in cell.items():
        if value not in experiment.axes[axis]:
            raise LabError(
                f"{place}.{axis}: expected one of {', '.join(experiment.axes[axis])}, got “{value}”"
            )
