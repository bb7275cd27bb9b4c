"""manifest.json: everything about a run that can move its numbers, and that its samples lack."""

from pathlib import Path
from typing import Any

import msgspec

from wallab.files import resultfolder
from wallab.record.build import Build
from wallab.record.cost import Cost, Session
from wallab.record.experiment import Cell, Experiment, Preset

FILE = "manifest.json"


class Machine(msgspec.Struct, frozen=True):
    """The machine that measured."""

    system: str
    kernel: str
    cpu: str
    cpus: int
    memory_kb: int
    governor: str
    mitigations: dict[str, str]
    python: str
    tuning: dict[str, str] = {}
    """Settings of the kernel that can move a number."""


class BedReport(msgspec.Struct, frozen=True):
    """What was found out while a bed was made ready."""

    templates: dict[str, dict[str, Any]]
    mounts: dict[str, list[str]]


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
    mounts: dict[str, list[str]] = {}
    """Drive -> its file system and the options of its mount, as the kernel tells them."""
    preparing_s: float = 0.0
    """What making the drives and the templates took, all sessions together, in seconds."""
    sessions: list[Session] = []
    cost: Cost | None = None
    """Brought up to date after each round."""


def find(name: str) -> Path:
    """Return the directory of a run: a path, a name below results/, or the latest one."""
    return resultfolder.find(name, FILE, "run", "scripts/run-matrix")


def load(run: Path) -> Manifest:
    """Read the manifest of a run; LabError if that is no run."""
    return resultfolder.load(run, FILE, Manifest, "run of the lab")
