"""manifest.json: everything about a run that can move its numbers, and that its samples lack."""

from pathlib import Path
from typing import Any

import msgspec

from wallab.files import jsonfile, resultfolder
from wallab.record.build import Build
from wallab.record.cost import Cost, Session
from wallab.record.experiment import Cell, Experiment, Preset
from wallab.record.virtualmachine import VirtualMachine

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
    machine: Machine | None = None
    """What the samples are measured on, if not this machine."""


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
    not_applicable: tuple[NotApplicable, ...] = ()
    """Cells that this machine or their server cannot do; beside those that lack their method."""
    templates: dict[str, dict[str, Any]] = {}
    """What was found out about each cluster that cells start from."""
    mounts: dict[str, list[str]] = {}
    """Drive -> its file system and the options of its mount, as the kernel tells them."""
    preparing_s: float = 0.0
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
    """Read the manifest of a run; LabError if that is no run."""
    return resultfolder.load(run, FILE, Manifest, "run of the lab")


def machine_difference(old: Machine, new: Machine) -> list[str]:
    """Name what differs: kernel, its settings, machine."""
    differing = ["kernel"] if old.kernel != new.kernel else []
    # Runs of before have none noted.
    differing += [
        f"kernel setting {name}"
        for name in sorted(old.tuning.keys() | new.tuning.keys() if old.tuning else ())
        if old.tuning.get(name) != new.tuning.get(name)
    ]
    # A kernel keeps a little more or less of the memory for itself from boot to boot.
    same_memory = abs(old.memory_kb - new.memory_kb) < 0.01 * old.memory_kb
    rest = msgspec.structs.replace(
        new,
        kernel=old.kernel,
        tuning=old.tuning,
        memory_kb=old.memory_kb if same_memory else new.memory_kb,
    )
    return [*differing, "machine"] if rest != old else differing


def difference(old: Manifest, new: Manifest) -> list[str]:
    """Name what differs between two manifests that should describe the same measurement."""
    differing = []

    def compare(name: str, before: object, now: object) -> None:
        if jsonfile.dumps(before) != jsonfile.dumps(now):
            differing.append(name)

    for name, field in (
        ("experiment", "name"),
        ("experiment", "experiment"),
        ("preset", "preset_name"),
        ("preset", "preset"),
        ("cells", "cells"),
        ("drives", "drives"),
    ):
        compare(name, getattr(old, field), getattr(new, field))
    if old.virtual or new.virtual:
        # What it was measured by is no part of it.
        compare("virtual machine", old.virtual, new.virtual)
    else:
        differing += machine_difference(old.machine, new.machine)
    compare("variants", sorted(old.builds), sorted(new.builds))
    for variant in sorted(old.builds.keys() & new.builds.keys()):
        before, now = old.builds[variant], new.builds[variant]
        compare("source", before.source, now.source)
        patches = [{p.name: p.sha256 for p in build.patches} for build in (before, now)]
        for patch in sorted(patches[0].keys() | patches[1].keys()):
            compare(f"patch {patch}", patches[0].get(patch), patches[1].get(patch))
        compare("compiler", before.compiler, now.compiler)
        if before.key != now.key and not differing:
            differing.append("options of the build")
    return list(dict.fromkeys(differing))
