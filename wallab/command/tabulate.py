"""scripts/tabulate: derive a run's tables from its raw samples."""

import sys
from pathlib import Path

import click

from wallab import paths, tabulation
from wallab.command import outcome
from wallab.errors import LabError

EPILOG = """\b
Examples:
  scripts/tabulate results/20261121-012233-thread
  scripts/tabulate latest --format markdown
  scripts/tabulate latest --format html > report.html
  scripts/tabulate latest --format svg > tps.svg
"""


def find_run(name: str) -> Path:
    """Return the directory of a run: a path, a name below results/, or the latest one."""
    if name == "latest":
        runs = sorted(paths.RESULTS.glob("2*/manifest.json"))
        if not runs:
            raise LabError(f"there is no run in {paths.RESULTS}; scripts/run-matrix makes one")
        return runs[-1].parent
    for folder in (Path(name), paths.RESULTS / name):
        if folder.is_dir():
            return folder
    raise LabError(f"no run “{name}”: name a directory below {paths.RESULTS}, or latest")


@click.command(epilog=EPILOG)
@click.argument("run")
@click.option(
    "--format",
    "kind",
    default="text",
    show_default=True,
    type=click.Choice([*tabulation.FORMATS, *tabulation.PAGES]),
)
def command(run: str, kind: str) -> None:
    """Print the table of RUN, derived from its raw samples."""
    sys.stdout.write(tabulation.render(tabulation.results_of(find_run(run)), kind))


if __name__ == "__main__":
    sys.exit(outcome.run(command, "tabulate"))
