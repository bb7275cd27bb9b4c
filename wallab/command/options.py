"""Options that several commands have, declared once."""

from pathlib import Path

import click
from click.core import ParameterSource

from wallab.errors import LabError

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

BUILD_SYSTEM = click.option(
    "--build-system",
    "system",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "meson", "autoconf"]),
)

MATRIX = click.option(
    "--matrix",
    "matrix_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another matrix.toml.",
)

OUTPUT = click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Where the results go: a directory that is not there or empty, else one below results/.",
)

SOURCE = click.option(
    "--source",
    "source_name",
    help="Major version, directory, tarball, or DIRECTORY@REF of a local clone.  "
    "[default: the experiment's]",
)


def refuse_with_resume(**of_the_run: object) -> None:
    """LabError if the command line names what the run to resume has decided otherwise.

    `of_the_run` are the values of that run, by the names of the command's parameters.
    """
    context = click.get_current_context()
    parameters = {one.name: one for one in context.command.params}
    for name, value in of_the_run.items():
        given = context.params[name]
        by_user = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if by_user and given != value:
            shown = parameters[name].opts[0]
            shown = shown if shown.startswith("-") else f"“{given}”"
            raise LabError(f"{shown}: the run to resume has its own; start a new one instead")
