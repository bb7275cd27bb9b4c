"""Options that several commands have, declared once."""

import os
from pathlib import Path

import click
from click.core import ParameterSource

from wallab.errors import LabError
from wallab.machine import sandbox

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


def _without_sandbox(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    """Set what whoever builds looks at."""
    if given:
        os.environ[sandbox.SETTING] = "1"


NO_SANDBOX = click.option(
    "--no-sandbox",
    is_flag=True,
    expose_value=False,
    callback=_without_sandbox,
    help="Build even where there is no sandbox: only for patches that you trust.",
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
