"""What a new or a resumed run is: decided from what is asked for, before anything is made."""

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from wallab.bench import provenance, run
from wallab.errors import LabError
from wallab.files import resultfolder
from wallab.files.timestamp import utc
from wallab.machine import checkout, sandbox
from wallab.record import manifest as manifests
from wallab.record import matrix, reference, series
from wallab.record.experiment import Cell, Experiment, Preset
from wallab.record.manifest import Manifest
from wallab.servers import builder, prebuilt

EXPERIMENT = "thread"
PRESET = "quick"


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, by the names of scripts/run-matrix's options; None: nothing was said."""

    experiment: str | None = None
    preset: str | None = None
    source: str | None = None
    build_system: str = "auto"
    variants: tuple[str, ...] | None = None
    seed: int | None = None
    rounds: int | None = None
    precision: float | None = None
    """Percent."""
    control: bool = False
    drive: Literal["simulated", "device", "directory"] | None = None
    directories: tuple[str, ...] = ()
    """One for all drives, or NAME=DIRECTORY for each."""
    resume: str | None = None
    machine: Literal["real", "virtual"] | None = None
    mips: int | None = None
    """Of a virtual machine."""
    output: Path | None = None
    matrix: Path | None = None


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured, and where the samples go."""

    folder: Path
    name: str
    """The experiment's."""
    preset_name: str
    experiment: Experiment
    preset: Preset
    cells: tuple[Cell, ...]
    seed: int
    build_system: str
    resumed: bool


class PreparedRun(msgspec.Struct, frozen=True):
    """A plan with its servers built."""

    manifest: Manifest
    """Lacks what only the test bed knows: methods and template."""
    servers: dict[str, Path]
    """As the manifest's builds -> the installed tree."""
    guest: bool
    """Whether the code of any of them is a stranger's."""


def planned(request: RunRequest) -> RunPlan:
    """Return what a run is that is asked for like this; LabError says what does not fit."""
    return _resumed(request, request.resume) if request.resume else _new(request)


def prepare(plan: RunPlan) -> PreparedRun:
    """Build the servers that are missing, and describe the machine and the lab.

    MachineError where this process may not have the drives, or servers no sandbox; LabError where
    a server cannot be built.
    """
    run.check_rights_for(plan.experiment)
    wanted = [(cell.get("source"), cell.get("variant", "stock")) for cell in plan.cells]
    if plan.experiment.machine == "virtual":
        # Templates are made by one server, whatever is measured.
        wanted += [(source, "stock") for source, _ in wanted]
    servers = builder.servers_of(wanted, plan.experiment.source, plan.build_system)
    guest = any(server.guest for server in servers.values())
    machine = provenance.machine()
    if plan.experiment.machine == "real":
        machine = msgspec.structs.replace(machine, sandbox=sandbox.kind(guest=guest))
    simulated = any(drive.kind == "simulated" for drive in plan.experiment.drive.values())
    manifest = Manifest(
        name=plan.name,
        preset_name=plan.preset_name,
        started=utc(),
        seed=plan.seed,
        lab=provenance.lab_state() | {"files": checkout.files()},
        machine=machine,
        experiment=plan.experiment,
        preset=plan.preset,
        cells=plan.cells,
        builds={name: server.build for name, server in servers.items()},
        methods={},
        drives=provenance.drive_parameters(plan.experiment),
        titles=provenance.titles(plan.experiment.axes),
        direct=series.direct_methods(series.read(), plan.experiment.axes.get("variant", ())),
        drive_program=checkout.drive_program() if simulated else "",
    )
    trees = {name: server.path for name, server in servers.items()}
    return PreparedRun(manifest, trees, guest)


def _new(request: RunRequest) -> RunPlan:
    name, preset_name = request.experiment or EXPERIMENT, request.preset or PRESET
    folder = resultfolder.new(request.output, name)
    experiment = _read(request.matrix, name, preset_name, request.source)
    if request.variants:
        experiment = matrix.with_variants(experiment, request.variants)
    if request.drive in {"device", "directory"}:
        experiment = _on_real_drives(experiment, request.drive, request.directories)
    elif request.directories:
        raise LabError("--directory: takes --drive device or --drive directory")
    if request.machine:
        experiment = msgspec.structs.replace(experiment, machine=request.machine)
    if request.mips:
        if experiment.machine != "virtual":
            raise LabError("--mips: a real machine has its own; add --machine virtual")
        experiment = msgspec.structs.replace(experiment, mips=request.mips)
    preset = experiment.preset[preset_name]
    cells = matrix.cells(experiment, preset)
    return RunPlan(
        folder=folder,
        name=name,
        preset_name=preset_name,
        experiment=experiment,
        preset=_adjusted(preset, cells, request),
        cells=tuple(cells),
        seed=secrets.randbits(32) if request.seed is None else request.seed,
        build_system=request.build_system,
        resumed=False,
    )


def _resumed(request: RunRequest, name: str) -> RunPlan:
    """Make the plan anew, as the run's was: `Run` refuses it where it has become another."""
    if request.rounds is not None or request.precision is not None or request.control:
        raise LabError("--rounds, --precision and --control are those of the run to resume")
    folder = manifests.find(name)
    before = manifests.load(folder)
    kept = resultfolder.kept
    kept(f"“{request.experiment}”", request.experiment, before.name)
    kept("--preset", request.preset, before.preset_name)
    kept("--seed", request.seed, before.seed)
    kept("--output", request.output, folder)
    kept("--machine", request.machine, before.experiment.machine)
    kept("--mips", request.mips, before.experiment.mips)
    if request.drive or request.directories:
        raise LabError("--drive and --directory are those of the run to resume")
    source = None
    if "source" not in before.experiment.axes:
        source = kept("--source", request.source, before.experiment.source)
    experiment = _read(request.matrix, before.name, before.preset_name, source or request.source)
    variants = before.experiment.axes.get("variant")
    if request.variants:
        kept("--variants", request.variants, variants)
    if variants and variants != experiment.axes.get("variant"):
        experiment = matrix.with_variants(experiment, variants)
    experiment = _on_drives_of(before.experiment, experiment)
    experiment = msgspec.structs.replace(
        experiment, machine=before.experiment.machine, mips=before.experiment.mips
    )
    # What options changed is in the run.
    preset = msgspec.structs.replace(
        experiment.preset[before.preset_name],
        rounds=before.preset.rounds,
        precision=before.preset.precision,
        control=before.preset.control,
    )
    return RunPlan(
        folder=folder,
        name=before.name,
        preset_name=before.preset_name,
        experiment=experiment,
        preset=preset,
        cells=tuple(matrix.cells(experiment, preset)),
        seed=before.seed,
        build_system=request.build_system,
        resumed=True,
    )


def _read(file: Path | None, name: str, preset_name: str, source: str | None) -> Experiment:
    """Return the experiment on the source; an image has one of its own where none is named."""
    experiment, _ = matrix.choose(matrix.read(file), name, preset_name)
    if experiment.reference:
        reference.load(experiment.reference, experiment.axes)
    return matrix.with_source(experiment, source or prebuilt.default_source())


def _adjusted(preset: Preset, cells: list[Cell], request: RunRequest) -> Preset:
    """Return the preset with what is asked for instead."""
    if request.rounds is not None:
        preset = msgspec.structs.replace(preset, rounds=request.rounds)
    if request.precision is not None:
        preset = msgspec.structs.replace(preset, precision=request.precision)
    if request.control and preset.control is None:
        preset = msgspec.structs.replace(preset, control=matrix.default_control(cells))
    return preset


# --- real drives ----------------------------------------------------------------------------


def _on_real_drives(
    experiment: Experiment, kind: Literal["device", "directory"], named: tuple[str, ...]
) -> Experiment:
    return matrix.on_real_drives(experiment, kind, directories_of(named, experiment.drive))


def _on_drives_of(before: Experiment, experiment: Experiment) -> Experiment:
    """Return the experiment on the real drives that a run had, where matrix.toml has none."""
    kind = next(iter(before.drive.values())).kind
    if kind == "simulated" or {d.kind for d in experiment.drive.values()} != {"simulated"}:
        return experiment
    named = tuple(f"{name}={drive.directory}" for name, drive in before.drive.items())
    return _on_real_drives(experiment, kind, named)


def directories_of(named: tuple[str, ...], drives: Iterable[str]) -> dict[str, str]:
    """Read --directory, once for all drives or as NAME=DIRECTORY; return drive -> directory."""
    directories: dict[str, str] = {}
    for argument in named:
        name, _, directory = argument.partition("=")
        if name in drives and directory:
            directories[name] = directory
        elif len(named) == 1:
            directories = dict.fromkeys(drives, argument)
        else:
            raise LabError(
                f"--directory {argument}: expected {' or '.join(f'{d}=DIR' for d in drives)}"
            )
    if missing := [name for name in drives if name not in directories]:
        raise LabError(
            f"--drive: name the directory on the drive with --directory DIR, or {missing[0]}=DIR"
        )
    return {name: str(Path(place).absolute()) for name, place in directories.items()}
