"""scripts/power-cut: which cells keep what they acknowledged."""

import os
import sys
from typing import Any, get_args

import click

from wallab.command import options, outcome
from wallab.files import jsonfile
from wallab.powercut import campaign, display
from wallab.powercut.conduct import Conductor
from wallab.powercut.cutcell import LoadName
from wallab.powercut.faultinjection import FAULTS
from wallab.powercut.plan import CUTS, FAULT, LOAD, CampaignRequest, planned, prepare
from wallab.progress import say

EPILOG = """\b
Examples:
  scripts/power-cut                                every cell of the thread, 3 cuts each
  scripts/power-cut --variants both,committed --cuts 50
  scripts/power-cut --cells write_cache=off,on --cells sync=open_direct --cells filesystem=xfs
  scripts/power-cut --variants foo                 a variant of your own
  scripts/power-cut --load reload --variants stock,reload-sync --cells write_cache=on
                                                   a reload of wal_sync_method, every pair of them
  scripts/power-cut --load standby --cells sync=fdatasync --cells to=open_datasync
  scripts/power-cut --resume latest
  scripts/tabulate RUN --cuts latest               the marks in a table of TPS
"""

GATE_FAILED = 1


@click.command(epilog=EPILOG)
@click.argument("experiment", required=False)
@click.option(
    "--cuts",
    type=click.IntRange(1),
    help=f"Of each cell that has to keep what it acknowledges.  [default: {CUTS}]",
)
@click.option(
    "--cells",
    multiple=True,
    metavar="AXIS=VALUE[,…]",
    help="Only cells with these values of variant, write_cache, sync, filesystem or, with a "
    "reload, to.",
)
@click.option(
    "--variants",
    callback=options.names_of,
    metavar="NAME[,…]",
    help="Only these variants; your own count (scripts/build-variant --patch).",
)
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
    type=click.Choice(list(FAULTS)),
    help=f"What happens to the server.  [default: {FAULT}]",
)
@click.option(
    "--load",
    type=click.Choice(get_args(LoadName)),
    help="What goes on meanwhile: transactions; or also a reload that changes wal_sync_method from "
    "sync to to, under a long statement, or on a standby that commits wait for."
    f"  [default: {LOAD}]",
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
def command(*, jobs: int | None, traces: str, list_only: bool, as_json: bool, **asked: Any) -> int:
    """Cut the power of EXPERIMENT's cells (default: thread) under load, and judge each.

    Exit 1 if a cell that has to keep what it acknowledges lost anything, or if a control that
    must lose did not: then the campaign proved nothing.
    """
    plan = planned(CampaignRequest(**asked))
    if list_only:
        for cell in plan.cells:
            print(cell.name.replace(" ", "\t"))
        say(f"{len(plan.cells)} cells, less those whose variant lacks a method, and the controls")
        return 0
    prepared, folder = prepare(plan), plan.folder
    try:
        conductor = Conductor(
            folder, prepared.campaign, prepared.servers, traces, guest=prepared.guest
        )
        report = conductor.conduct(jobs or (os.cpu_count() or 1) + 1, resumed=plan.resumed)
    except KeyboardInterrupt:
        if (folder / campaign.CUTS).exists():
            say(f"go on with: scripts/power-cut --resume {folder}")
        raise
    sys.stdout.write(jsonfile.pretty(report) + "\n" if as_json else display.render(report))
    say(f"results: {folder}")
    good = report.proved and not report.honest_losses and not report.unfinished
    return 0 if good else GATE_FAILED


if __name__ == "__main__":
    sys.exit(outcome.run(command, "power-cut"))
