"""scripts/tabulate: derive a run's tables from its raw samples."""

import sys
from pathlib import Path

import click

from wallab.command import outcome
from wallab.errors import LabError
from wallab.powercut import campaign, marks
from wallab.progress import say
from wallab.record import manifest
from wallab.record.values import VALUES
from wallab.results import comparison, index, tabulation
from wallab.results.compared import Compared, slower
from wallab.results.export import versus

EPILOG = """\b
Examples:
  scripts/tabulate results/20261121-012233-thread
  scripts/tabulate latest --format markdown
  scripts/tabulate latest --format html > report.html
  scripts/tabulate latest --format mail > answer.txt
  scripts/tabulate latest --format svg > bars.svg
  scripts/tabulate latest --rows variant --columns write_cache --value p99
  scripts/tabulate latest --cuts latest
  scripts/tabulate --index results
  scripts/tabulate latest --fail-if-slower 5
  scripts/tabulate latest --against results/20261120-011500-thread
  scripts/tabulate latest --against results/20261120-011500-thread --fail-if-slower 5
"""


def axes_of(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    return tuple(filter(None, (name.strip() for name in value.split(","))))


def gate(compared: Compared, percent: float, *, few_rounds: bool) -> int:
    """Say which cells are slower by more than so many percent, failed, or have no verdict.

    Return the exit code; cells without a verdict pass with `few_rounds` alone.
    """
    failing = slower(compared, percent)
    for pair in failing:
        say(f"slower: {', '.join(pair.cell.values())}: {comparison.words(pair.comparison)}")
    for cell in compared.failed:
        say(f"failed in every round: {', '.join(cell.values())}")
    for cell in compared.unjudged:
        say(f"too few rounds for a verdict: {', '.join(cell.values())}")
    if compared.unjudged and not few_rounds:
        say(
            f"a verdict takes {comparison.VERDICT_ROUNDS} rounds on either side; "
            "--allow-few-rounds lets cells without one pass"
        )
    unproved = compared.unjudged and not few_rounds
    return 1 if failing or compared.failed or unproved else 0


def list_runs(folder: Path) -> int:
    """Write the page that lists the folder's runs, and say which cannot be read."""
    page, damaged = index.write(folder)
    for run in damaged:
        say(f"left out: {run.name}: {run.reason}")
    print(page)
    return 0


@click.command(epilog=EPILOG)
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option(
    "--index",
    "folder_of_runs",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Write index.html there: all of its runs on one page, sortable, with their reports.",
)
@click.option(
    "--format",
    "kind",
    default="text",
    show_default=True,
    type=click.Choice(tabulation.KINDS),
)
@click.option(
    "--rows",
    callback=axes_of,
    default="",
    metavar="AXIS,…",
    help="Axes that make the rows; those named nowhere follow.",
)
@click.option("--columns", "column", metavar="AXIS", help="The axis that makes the columns.")
@click.option(
    "--value",
    type=click.Choice(list(VALUES)),
    help="The figure that is shown; else the experiment's.",
)
@click.option(
    "--cuts",
    multiple=True,
    metavar="CAMPAIGN",
    help="Mark the cells with what power cuts have shown of them (scripts/power-cut); repeatable.",
)
@click.option("--against", metavar="RUN", help="Compare with this run, cell by cell.")
@click.option(
    "--fail-if-slower",
    "percent",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 1 if a cell is slower by more than this, failed in every round, or has too few "
    "rounds for a verdict: than in the run --against, or than with the variant it is built on.",
)
@click.option(
    "--allow-few-rounds",
    "few_rounds",
    is_flag=True,
    help="With --fail-if-slower: let cells pass that have too few rounds for a verdict.",
)
def command(
    run_name: str | None,
    folder_of_runs: Path | None,
    kind: str,
    rows: tuple[str, ...],
    column: str | None,
    value: str | None,
    cuts: tuple[str, ...],
    against: str | None,
    percent: float | None,
    few_rounds: bool,
) -> int:
    """Print the table of RUN, derived from its raw samples."""
    if folder_of_runs is not None:
        others = (run_name, rows, column, value, cuts, against, few_rounds, kind != "text")
        if any(others) or percent is not None:
            raise LabError("--index lists all runs of a directory: nothing else fits")
        return list_runs(folder_of_runs)
    if run_name is None:
        raise LabError("name a RUN, such as latest; or list all: --index results")
    folder = manifest.find(run_name)
    if few_rounds and percent is None:
        raise LabError("--allow-few-rounds is for --fail-if-slower")
    if against is None:
        campaigns = [campaign.find(name) for name in cuts]
        mark = marks.of(campaigns, manifest.load(folder)) if campaigns else None
        results = tabulation.results_of(folder, rows, column, value, mark)
        within = results.table.within
        if percent is not None and within is None:
            raise LabError(
                "--fail-if-slower: no variant of the run has one that it is built on beside it; "
                "name a run to compare with: --against RUN"
            )
        sys.stdout.write(tabulation.render(results, kind))
        return gate(within, percent, few_rounds=few_rounds) if within and percent is not None else 0
    if cuts:
        raise LabError("--against compares figures alone: --cuts does not fit")
    if rows or column:
        raise LabError("--against has a line for each cell: --rows and --columns do not fit")
    if kind not in versus.FORMATS:
        raise LabError(f"--against has no format {kind}; it has {', '.join(versus.FORMATS)}")
    compared = tabulation.comparison_of(folder, manifest.find(against), value)
    sys.stdout.write(versus.FORMATS[kind](compared))
    return gate(compared, percent, few_rounds=few_rounds) if percent is not None else 0


if __name__ == "__main__":
    sys.exit(outcome.run(command, "tabulate"))
