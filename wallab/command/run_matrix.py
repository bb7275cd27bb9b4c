"""scripts/run-matrix: measure an experiment of matrix.toml."""

import re
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from wallab.bench import run
from wallab.bench.testbed import TestBed
from wallab.command import options, outcome
from wallab.errors import LabError
from wallab.files import resultfolder
from wallab.files.timestamp import utc
from wallab.progress import say
from wallab.record import manifest as manifests
from wallab.record import matrix, reference
from wallab.record.manifest import Manifest
from wallab.record.matrix import Cell, Experiment
from wallab.results import tabulation
from wallab.results.intervals import STOPPING_ROUNDS
from wallab.results.table import Table
from wallab.servers import builder, prebuilt

EPILOG = """\b
Examples:
  scripts/run-matrix                            the thread's table, about 10 minutes
  scripts/run-matrix thread --preset smoke      2 to 3 minutes
  scripts/run-matrix --source ~/postgresql      on another tree
  scripts/run-matrix --rounds 20 --precision 5  until ± 5%, but 20 rounds at most
  scripts/run-matrix --variants stock,foo       with a variant of your own
  scripts/run-matrix --resume latest            go on after an interruption
  scripts/run-matrix --drive directory --directory /srv/x   where that is, as it is
  scripts/run-matrix --drive device --directory /srv/x      its write cache switched
  scripts/run-matrix --dry-run                  list what would be measured
"""


def directories_of(named: tuple[str, ...], drives: Iterable[str]) -> dict[str, str]:
    """Read --directory, once for all drives or as NAME=DIRECTORY; return drive -> directory."""
    found: dict[str, str] = {}
    for one in named:
        name, _, directory = one.partition("=")
        if name in drives and directory:
            found[name] = directory
        elif len(named) == 1:
            found = dict.fromkeys(drives, one)
        else:
            raise LabError(f"--directory {one}: expected {' or '.join(f'{d}=DIR' for d in drives)}")
    if missing := [name for name in drives if name not in found]:
        raise LabError(
            f"--drive: name the directory on the drive with --directory DIR, or {missing[0]}=DIR"
        )
    return {name: str(Path(place).absolute()) for name, place in found.items()}


def with_drives(
    experiment: Experiment, before: Manifest | None, kind: str | None, named: tuple[str, ...]
) -> Experiment:
    """Return the experiment on the drives that the options name, or the run to be resumed had."""
    if before:
        if kind or named:
            raise LabError("--drive and --directory are those of the run to resume")
        old = before.experiment.drive
        if {drive.kind for drive in experiment.drive.values()} == {"simulated"}:
            kind = next(iter(old.values())).kind
            named = tuple(f"{name}={drive.directory}" for name, drive in old.items())
    if kind in (None, "simulated"):
        if named and not before:
            raise LabError("--directory: takes --drive device or --drive directory")
        return experiment
    directories = directories_of(named, experiment.drive)
    return matrix.on_real_drives(
        experiment, "device" if kind == "device" else "directory", directories
    )


def seconds_of(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """Read a duration: minutes, or a number with s, m or h."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value)
    if not found or not float(found[1]):
        raise click.BadParameter(f"{value}: expected a duration, such as 90s, 45m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "": 60, "h": 3600}[found[2]]


def adjusted(
    preset: matrix.Preset,
    cells: list[Cell],
    rounds: int | None,
    precision: float | None,
    control: bool,
) -> matrix.Preset:
    """Return the preset with what the options change."""
    if rounds is not None:
        preset = msgspec.structs.replace(preset, rounds=rounds)
    if precision is not None:
        preset = msgspec.structs.replace(preset, precision=precision)
    # --variants may have left the preset's own control out.
    left_out = preset.control is not None and preset.control not in cells
    if left_out or (control and preset.control is None):
        # What syncs repeats better than what the processor limits: take the harder one.
        preset = msgspec.structs.replace(preset, control=cells[0])
    return preset


def dry_run(plan: matrix.Preset, cells: list[Cell]) -> None:
    """Print the cells, a line each."""
    for cell in cells:
        print("\t".join(cell.values()))
    early = f", fewer where ± {plan.precision:g}% is reached" if plan.precision else ""
    control = ", one cell twice a round" if plan.control else ""
    say(
        f"{len(cells)} cells × {plan.rounds} rounds{early}{control}, "
        f"less those that a variant lacks; {plan.about}"
    )


def report_failed(table: Table, folder: Path) -> int:
    """Say which cells failed in every round; return the exit code."""
    failed = [
        cell.cell for row in table.rows for cell in row.cells if cell and cell.state == "failed"
    ]
    for cell in failed:
        say(f"failed in every round: {', '.join(cell.values())}; {folder / run.SAMPLES} says why")
    return 1 if failed else 0


def of_variants(experiment: Experiment, named: str | None, before: Manifest | None) -> Experiment:
    """Return the experiment with the named variants, or with those that the run began with."""
    if named:
        return matrix.with_variants(experiment, tuple(named.split(",")))
    begun = before.experiment.axes.get("variant") if before else None
    if begun and begun != experiment.axes.get("variant"):
        return matrix.with_variants(experiment, begun)
    return experiment


@click.command(epilog=EPILOG)
@click.argument("experiment", default="thread")
@click.option("--preset", default="quick", show_default=True, help="How much is measured.")
@options.SOURCE
@options.BUILD_SYSTEM
@options.NO_SANDBOX
@click.option(
    "--variants",
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
    "kind",
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
@click.option("--dry-run", "list_only", is_flag=True, help="List the cells, measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def command(
    experiment: str,
    preset: str,
    source_name: str | None,
    system: str,
    variants: str | None,
    seed: int | None,
    rounds: int | None,
    precision: float | None,
    max_seconds: float | None,
    control: bool,
    resume: str | None,
    output: Path | None,
    matrix_file: Path | None,
    kind: str | None,
    directories: tuple[str, ...],
    root_device_too: bool,
    list_only: bool,
    as_json: bool,
) -> int:
    """Measure EXPERIMENT (default: thread) and print its table.

    Without arguments: the thread's table at preset quick, on simulated drives. Exit 1 if a cell
    failed in every round.
    """
    before: Manifest | None = None
    if resume:
        if rounds is not None or precision is not None or control:
            raise LabError("--rounds, --precision and --control are those of the run to resume")
        folder = run.find(resume)
        before = manifests.load(folder)
        options.refuse_with_resume(
            experiment=before.name, preset=before.preset_name, seed=before.seed, output=folder
        )
        experiment, preset, seed = before.name, before.preset_name, before.seed
        if "source" not in before.experiment.axes:
            source_name = source_name or before.experiment.source
    else:
        folder = resultfolder.new(output, experiment)
    chosen, how_much = matrix.choose(matrix.read(matrix_file), experiment, preset)
    if chosen.reference:
        reference.load(chosen.reference)
    chosen = matrix.with_source(chosen, source_name or prebuilt.default_source())
    chosen = of_variants(chosen, variants, before)
    chosen = with_drives(chosen, before, kind, directories)
    how_much = chosen.preset[preset]
    cells = matrix.cells(chosen, how_much)
    if before:
        # What options changed is in the run; whatever else differs is refused.
        how_much = msgspec.structs.replace(
            how_much,
            rounds=before.preset.rounds,
            precision=before.preset.precision,
            control=before.preset.control,
        )
    else:
        how_much = adjusted(how_much, cells, rounds, precision, control)
    if list_only:
        dry_run(how_much, cells)
        return 0
    run.check_rights_for(chosen)
    wanted = [matrix.conditions(chosen, how_much, cell) for cell in cells]
    servers = builder.servers_of(wanted, chosen.source, system)
    plan = Manifest(
        name=experiment,
        preset_name=preset,
        started=utc(),
        seed=secrets.randbits(32) if seed is None else seed,
        lab=manifests.lab_state(),
        machine=manifests.machine(),
        experiment=chosen,
        preset=how_much,
        cells=tuple(cells),
        builds={name: server.build for name, server in servers.items()},
        methods={},
        drives=manifests.drive_parameters(chosen),
    )
    paths_of = {name: server.path for name, server in servers.items()}
    try:
        bed = TestBed(
            plan.experiment,
            plan.preset,
            plan.cells,
            paths_of,
            root_device_too=root_device_too,
        )
        run.Run(folder, plan, bed).measure(resumed=before is not None, max_seconds=max_seconds)
    except KeyboardInterrupt:
        if (folder / run.SAMPLES).exists():
            say(f"go on with: scripts/run-matrix --resume {folder}")
        raise
    table = tabulation.write_files(folder)
    sys.stdout.write(tabulation.FORMATS["json" if as_json else "text"](table))
    say(f"results: {folder}")
    return report_failed(table, folder)


if __name__ == "__main__":
    sys.exit(outcome.run(command, "run-matrix"))
