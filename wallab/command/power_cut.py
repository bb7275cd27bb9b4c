"""scripts/power-cut: which cells keep what they acknowledged."""

import os
import secrets
import sys
from pathlib import Path

import click

from wallab.command import options, outcome
from wallab.errors import LabError
from wallab.files import jsonfile, resultfolder
from wallab.files.timestamp import utc
from wallab.machine import rights
from wallab.powercut import campaign, conduct, display
from wallab.powercut.campaign import Plan
from wallab.powercut.faults import FAULTS
from wallab.progress import say
from wallab.record import manifest as manifests
from wallab.record import matrix
from wallab.record.conditions import Conditions
from wallab.servers import builder, prebuilt

EPILOG = """\b
Examples:
  scripts/power-cut                                every cell of the thread, 3 cuts each
  scripts/power-cut --variants both,committed --cuts 50
  scripts/power-cut --cells write_cache=off,on --cells sync=open_direct --cells filesystem=xfs
  scripts/power-cut --resume latest
  scripts/tabulate RUN --cuts latest               the marks in a table of TPS
"""

GATE_FAILED = 1


@click.command(epilog=EPILOG)
@click.argument("experiment", default="thread")
@click.option(
    "--cuts",
    type=click.IntRange(1),
    help="Of each cell that has to keep what it acknowledges.  [default: 3]",
)
@click.option(
    "--cells",
    "conditions",
    multiple=True,
    metavar="AXIS=VALUE[,…]",
    help="Only cells with these values of variant, write_cache, sync or filesystem.",
)
@click.option("--variants", metavar="NAME[,…]", help="Only these variants.")
@click.option("--seed", type=click.IntRange(0), help="Of all moments and of the order; else random")
@options.SOURCE
@options.NO_SANDBOX
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Cuts at a time, each with drives and a server of its own.  [default: processors + 1]",
)
@click.option(
    "--fault",
    default="power",
    show_default=True,
    type=click.Choice(list(FAULTS)),
    help="What happens to the server.",
)
@click.option(
    "--traces",
    default="lost",
    show_default=True,
    type=click.Choice(["none", "lost", "all"]),
    help="Which cuts leave the trace of their WAL drive (drive/TRACE.md).",
)
@click.option("--resume", metavar="CAMPAIGN", help="Go on with one; --cuts may ask for more.")
@options.OUTPUT
@options.MATRIX
@click.option("--dry-run", "list_only", is_flag=True, help="List the cells, cut nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdicts as JSON.")
def command(
    experiment: str,
    cuts: int | None,
    conditions: tuple[str, ...],
    variants: str | None,
    seed: int | None,
    source_name: str | None,
    jobs: int | None,
    fault: str,
    traces: str,
    resume: str | None,
    output: Path | None,
    matrix_file: Path | None,
    list_only: bool,
    as_json: bool,
) -> int:
    """Cut the power of EXPERIMENT's cells (default: thread) under load, and judge each.

    Exit 1 if a cell that has to keep what it acknowledges lost anything, or if a control that
    must lose did not: then the campaign proved nothing.
    """
    if variants:
        conditions = (*conditions, f"variant={variants}")
    before: Plan | None = None
    if resume:
        if conditions or source_name or output or seed is not None or fault != "power":
            raise LabError("--resume goes with --cuts, --jobs, --traces and --matrix alone")
        folder = campaign.find(resume)
        before = campaign.load(folder)
        options.refuse_with_resume(experiment=before.name)
        experiment, source_name, fault = before.name, before.source, before.fault
    else:
        folder = resultfolder.new(output, "power-cuts")
    chosen = matrix.with_source(
        matrix.find(matrix.read(matrix_file), experiment), source_name or prebuilt.default_source()
    )
    cells = list(before.cells) if before else campaign.choose(chosen, conditions)
    if list_only:
        for cell in cells:
            print(cell.name.replace(" ", "\t"))
        say(f"{len(cells)} cells, less those whose variant lacks the method, and the controls")
        return 0
    rights.check()
    servers = builder.servers_of(
        [Conditions(scale=1, clients=1, variant=cell.variant) for cell in cells],
        chosen.source,
        "auto",
    )
    plan = Plan(
        name=experiment,
        started=before.started if before else utc(),
        seed=before.seed if before else secrets.randbits(32) if seed is None else seed,
        cuts=cuts or (before.cuts if before else 3),
        fault=fault,
        cells=tuple(cells),
        controls=tuple(campaign.control_cells(cells[-1].variant) if fault == "power" else ()),
        settings=chosen.settings,
        profiles={name: drive.profile for name, drive in chosen.drive.items()},
        source=chosen.source,
        builds={name: server.build for name, server in servers.items()},
        lab=manifests.lab_state(),
        machine=manifests.machine(),
    )
    installed = {name: server.path for name, server in servers.items()}
    try:
        told = conduct.Conductor(folder, plan, installed, traces).conduct(
            jobs or (os.cpu_count() or 1) + 1, resumed=before is not None
        )
    except KeyboardInterrupt:
        if (folder / campaign.CUTS).exists():
            say(f"go on with: scripts/power-cut --resume {folder}")
        raise
    sys.stdout.write(jsonfile.pretty(told) + "\n" if as_json else display.render(told))
    say(f"results: {folder}")
    good = told.proved and not told.honest_losses and not told.unfinished
    return 0 if good else GATE_FAILED


if __name__ == "__main__":
    sys.exit(outcome.run(command, "power-cut"))
