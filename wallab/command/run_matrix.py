"""scripts/run-matrix: measure an experiment of matrix.toml."""

import re
import sys
from pathlib import Path
from typing import Any

import click

from wallab.bench import run
from wallab.bench.ahead import Ahead
from wallab.bench.engine import Engine
from wallab.bench.plan import PRESET, RunPlan, RunRequest, planned, prepare
from wallab.bench.realbed import RealBed
from wallab.command import options, outcome
from wallab.errors import LabError
from wallab.fleet import contact as contacts
from wallab.fleet.contact import Contact
from wallab.machine import serversandbox
from wallab.progress import say
from wallab.record import manifest as manifests
from wallab.record.samples import SAMPLES
from wallab.results import tabulation
from wallab.results.intervals import STOPPING_ROUNDS
from wallab.results.table import Table
from wallab.virtual import bed as virtualbed
from wallab.virtual.bed import VirtualBed

EPILOG = """\b
Examples:
  scripts/run-matrix                            the thread's table, about 10 minutes
  scripts/run-matrix thread --preset smoke      about 3 minutes
  scripts/run-matrix --source ~/postgresql      on another tree
  scripts/run-matrix --rounds 20 --precision 5  until ± 5%, but 20 rounds at most
  scripts/run-matrix --variants stock,foo       with a variant of your own
  scripts/run-matrix --resume latest            go on after an interruption
  scripts/run-matrix --drive directory --directory /srv/x   where that is, as it is
  scripts/run-matrix --drive device --directory /srv/x      its write cache switched
  scripts/run-matrix --machine virtual --jobs 2 by a clock that counts instructions
  scripts/run-matrix --machine virtual --scheduler tcp://HOST:8786  by a fleet
  scripts/run-matrix --dry-run                  list what would be measured
"""


def seconds_of(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """Read a duration: minutes, or a number with s, m or h."""
    if value is None:
        return None
    duration = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value)
    if not duration or not float(duration[1]):
        raise click.BadParameter(f"{value}: expected a duration, such as 90s, 45m or 2h")
    return float(duration[1]) * {"s": 1, "m": 60, "": 60, "h": 3600}[duration[2]]


def dry_run(plan: RunPlan) -> None:
    """Print the cells, a line each."""
    for cell in plan.cells:
        print("\t".join(cell.values()))
    preset = plan.preset
    early = f", fewer where ± {preset.precision:g}% is reached" if preset.precision else ""
    control = ", one cell twice a round" if preset.control else ""
    say(
        f"{len(plan.cells)} cells × {preset.rounds} rounds{early}{control}, "
        f"less those that a variant lacks; {preset.about}"
    )


def report_failed(table: Table, folder: Path) -> int:
    """Say which cells failed in every round; return the exit code."""
    failed = [
        cell.cell for row in table.rows for cell in row.cells if cell and cell.state == "failed"
    ]
    for cell in failed:
        say(f"failed in every round: {', '.join(cell.values())}; {folder / SAMPLES} says why")
    return 1 if failed else 0


def check_fleet(scheduler: str | None, *, virtual: bool, jobs: int | None, alone: bool) -> None:
    """LabError where options do not go with a scheduler, or not without; MachineError: no Dask."""
    if not scheduler:
        if not alone:
            raise LabError("--key and --insecure: are for a --scheduler")
        return
    if not virtual:
        raise LabError("--scheduler: real time is measured here; add --machine virtual")
    if jobs:
        raise LabError("--jobs: each host of a fleet is told its own, by scripts/worker")
    contacts.check_dask()


def fleet_of(contact: Contact, bed: VirtualBed) -> Engine:
    """Return the engine that has samples of the bed taken by a fleet."""
    # Who measures alone need not have Dask.
    from wallab.fleet.desk import Desk  # noqa: PLC0415
    from wallab.fleet.engine import Fleet  # noqa: PLC0415
    from wallab.fleet.virtualsource import VirtualSource  # noqa: PLC0415

    return Fleet(contact, VirtualSource(bed), Desk(bed.parcels()))


@click.command(epilog=EPILOG)
@click.argument("experiment", required=False)
@click.option("--preset", help=f"How much is measured.  [default: {PRESET}]")
@options.SOURCE
@options.BUILD_SYSTEM
@options.NO_SANDBOX
@click.option(
    "--variants",
    callback=options.names_of,
    metavar="NAME,NAME…",
    help="Instead of the experiment's variants; your own count (scripts/build-variant --patch).",
)
@click.option("--seed", type=click.IntRange(0), help="Of the order of the cells; else random.")
@click.option("--rounds", type=click.IntRange(1), help="How often each cell is measured at most.")
@click.option(
    "--precision",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help=f"Measure a cell no more when its 95% interval is ± this, after {STOPPING_ROUNDS} rounds.",
)
@click.option(
    "--max-time",
    "max_seconds",
    callback=seconds_of,
    metavar="TIME",
    help="Begin no sample after this (90s, 45m, 2h); --resume goes on.",
)
@click.option("--control", is_flag=True, help="Measure a cell under two names: an A/A control.")
@click.option("--resume", metavar="RUN", help="Go on with an interrupted run.")
@options.OUTPUT
@options.MATRIX
@click.option(
    "--drive",
    type=click.Choice(["simulated", "device", "directory"]),
    help="Real ones: a device whose write cache is switched, or a directory as it is.",
)
@click.option(
    "--directory",
    "directories",
    multiple=True,
    metavar="[NAME=]DIR",
    help="On the real drive; for wal and data, or each (wal=DIR).",
)
@click.option(
    "--root-device-too",
    is_flag=True,
    help="Switch the cache even of a device that holds the running system.",
)
@click.option(
    "--machine",
    type=click.Choice(["real", "virtual"]),
    help="This machine and its clock, or an emulated one whose clock counts instructions.",
)
@click.option(
    "--mips",
    type=click.IntRange(1, 1000),
    help="Million instructions a second of a virtual machine.  [default: the experiment's]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Samples at a time, on a virtual machine.  [default: what this machine holds]",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Have samples of a virtual machine taken by the workers of scripts/scheduler there.",
)
@options.KEY
@options.INSECURE
@click.option("--dry-run", "list_only", is_flag=True, help="List the cells, measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def command(
    *,
    max_seconds: float | None,
    root_device_too: bool,
    jobs: int | None,
    scheduler: str | None,
    key: Path | None,
    insecure: bool,
    list_only: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Measure EXPERIMENT (default: thread) and print its table.

    Without arguments: the thread's table at preset quick, on simulated drives. Exit 1 if a cell
    failed in every round.
    """
    plan = planned(RunRequest(**asked))
    virtual = plan.experiment.machine == "virtual"
    if virtual:
        virtualbed.check(plan.experiment)
    elif jobs not in {None, 1}:
        raise LabError("--jobs: in real time samples disturb each other; add --machine virtual")
    check_fleet(scheduler, virtual=virtual, jobs=jobs, alone=not (key or insecure))
    if list_only:
        dry_run(plan)
        return 0
    contact = contacts.contact(scheduler, key, insecure=insecure) if scheduler else None
    prepared = prepare(plan)
    folder, manifest = plan.folder, prepared.manifest
    try:
        parts = (manifest.experiment, manifest.preset, manifest.cells, prepared.servers)
        bed: RealBed | VirtualBed
        engine: Engine
        if virtual:
            # Of the emulator and the kernel of a run that goes on, there may be newer ones.
            before = manifests.load(folder).virtual if plan.resumed else None
            bed = VirtualBed(
                *parts, seed=manifest.seed, folder=folder, workers=jobs,
                packages=before.packages if before else None,
            )  # fmt: skip
            manifest.virtual = bed.machine
            engine = fleet_of(contact, bed) if contact else Ahead(bed, bed.jobs)
        else:
            confinement = serversandbox.confinement(guest=prepared.guest)
            bed = RealBed(*parts, confinement, root_device_too=root_device_too)
            engine = Ahead(bed, 1)
        measuring = run.Run(folder, manifest, bed, engine)
        measuring.measure(resumed=plan.resumed, max_seconds=max_seconds)
    except KeyboardInterrupt:
        if (folder / SAMPLES).exists():
            say(f"go on with: scripts/run-matrix --resume {folder}")
        raise
    table = tabulation.write_files(folder)
    sys.stdout.write(tabulation.FORMATS["json" if as_json else "text"](table))
    say(f"results: {folder}")
    return report_failed(table, folder)


if __name__ == "__main__":
    sys.exit(outcome.run(command, "run-matrix"))
