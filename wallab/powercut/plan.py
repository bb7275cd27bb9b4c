"""What a new or a resumed campaign is: decided from what is asked for, before anything is made."""

import secrets
from pathlib import Path

import msgspec

from wallab.bench import provenance
from wallab.errors import LabError
from wallab.files import resultfolder
from wallab.files.timestamp import utc
from wallab.machine import checkout, rights, sandbox
from wallab.powercut import campaign
from wallab.powercut.campaign import Campaign
from wallab.powercut.cutcell import CutCell, LoadName
from wallab.record import matrix
from wallab.record.experiment import Experiment
from wallab.servers import builder, prebuilt

EXPERIMENT = "thread"
CUTS = 3
FAULT = "power"
LOAD: LoadName = "transactions"


class CampaignRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, by the names of scripts/power-cut's options; None: nothing was said."""

    experiment: str | None = None
    cuts: int | None = None
    cells: tuple[str, ...] = ()
    """Conditions, each AXIS=VALUE[,VALUE…]; a cell fits all of them."""
    variants: tuple[str, ...] | None = None
    seed: int | None = None
    source: str | None = None
    fault: str | None = None
    load: LoadName | None = None
    resume: str | None = None
    output: Path | None = None
    matrix: Path | None = None


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be cut, and where the records go."""

    folder: Path
    name: str
    """The experiment's."""
    source: str
    settings: dict[str, str]
    profiles: dict[str, str]
    """Drive -> its profile."""
    cells: tuple[CutCell, ...]
    controls: tuple[CutCell, ...]
    cuts: int
    """Wanted of each cell."""
    fault: str
    seed: int
    resumed: bool


class PreparedCampaign(msgspec.Struct, frozen=True):
    """A plan with its servers built."""

    campaign: Campaign
    """Lacks the methods, which the workers find out."""
    servers: dict[str, Path]
    """Variant -> its installed tree."""
    guest: bool
    """Whether the code of any of them is a stranger's."""


def planned(request: CampaignRequest) -> CampaignPlan:
    """Return what a campaign is that is asked for like this; LabError says what does not fit."""
    return _resumed(request, request.resume) if request.resume else _new(request)


def prepare(plan: CampaignPlan) -> PreparedCampaign:
    """Build the servers that are missing, and describe the machine and the lab.

    MachineError where this process may not make drives, or servers have no sandbox; LabError where
    a server cannot be built.
    """
    rights.check()
    wanted = [(None, cell.variant) for cell in plan.cells]
    servers = builder.servers_of(wanted, plan.source, "auto")
    guest = any(server.guest for server in servers.values())
    kind = sandbox.kind(guest=guest)
    record = Campaign(
        name=plan.name,
        started=utc(),
        seed=plan.seed,
        cuts=plan.cuts,
        fault=plan.fault,
        cells=plan.cells,
        controls=plan.controls,
        settings=plan.settings,
        profiles=plan.profiles,
        source=plan.source,
        builds={name: server.build for name, server in servers.items()},
        lab=provenance.lab_state() | {"files": checkout.files()},
        machine=msgspec.structs.replace(provenance.machine(), sandbox=kind),
        drive_program=checkout.drive_program(),
        titles=provenance.titles({"variant": tuple(servers)}),
    )
    trees = {name: server.path for name, server in servers.items()}
    return PreparedCampaign(record, trees, guest)


def _new(request: CampaignRequest) -> CampaignPlan:
    folder = resultfolder.new(request.output, "power-cuts")
    name = request.experiment or EXPERIMENT
    experiment = _read(request.matrix, name, request.source)
    if request.variants:
        experiment = matrix.with_variants(experiment, request.variants)
    load, fault = request.load or LOAD, request.fault or FAULT
    if load != LOAD and fault != FAULT:
        raise LabError(f"--load {load} goes with --fault {FAULT}: it is about what is not synced")
    cells = campaign.choose(experiment, request.cells, load)
    return CampaignPlan(
        folder=folder,
        name=name,
        source=experiment.source,
        settings=experiment.settings,
        profiles=_profiles(experiment),
        cells=tuple(cells),
        controls=_controls(cells, fault),
        cuts=request.cuts or CUTS,
        fault=fault,
        seed=secrets.randbits(32) if request.seed is None else request.seed,
        resumed=False,
    )


def _resumed(request: CampaignRequest, name: str) -> CampaignPlan:
    """Make the plan anew, as the campaign's was: it is refused where it has become another."""
    decided = (
        request.variants,
        request.seed,
        request.source,
        request.fault,
        request.load,
        request.output,
    )
    if request.cells or any(option is not None for option in decided):
        raise LabError("--resume goes with --cuts, --jobs, --traces and --matrix alone")
    folder = campaign.find(name)
    before = campaign.load(folder)
    resultfolder.kept(f"“{request.experiment}”", request.experiment, before.name)
    experiment = _read(request.matrix, before.name, before.source)
    return CampaignPlan(
        folder=folder,
        name=before.name,
        source=experiment.source,
        settings=experiment.settings,
        profiles=_profiles(experiment),
        cells=before.cells,
        controls=_controls(before.cells, before.fault),
        cuts=request.cuts or before.cuts,
        fault=before.fault,
        seed=before.seed,
        resumed=True,
    )


def _read(file: Path | None, name: str, source: str | None) -> Experiment:
    """Return the experiment on the source; an image has one of its own where none is named."""
    experiment = matrix.find(matrix.read(file), name)
    return matrix.with_source(experiment, source or prebuilt.default_source())


def _profiles(experiment: Experiment) -> dict[str, str]:
    """Return drive -> its profile; LabError if the power of these drives cannot be cut."""
    if set(experiment.drive) != {"wal", "data"} or any(
        drive.kind != "simulated" for drive in experiment.drive.values()
    ):
        raise LabError(
            "a power cut takes an experiment with simulated drives, drive.wal and drive.data"
        )
    for name, drive in experiment.drive.items():
        if drive.elevator:
            raise LabError(f"drive.{name}.elevator: a power cut takes that of the profile")
    return {name: drive.profile for name, drive in experiment.drive.items()}


def _controls(cells: list[CutCell] | tuple[CutCell, ...], fault: str) -> tuple[CutCell, ...]:
    """Return the positive controls, which only a power cut has, on the last variant."""
    return tuple(campaign.control_cells(cells[-1].variant)) if fault == FAULT else ()
