"""Options that several commands have, declared once."""

import os
from pathlib import Path

import click

from wallab.machine import sandbox

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

BUILD_SYSTEM = click.option(
    "--build-system",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "meson", "autoconf"]),
)

MATRIX = click.option(
    "--matrix",
    "matrix",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another matrix.toml.",
)


KEY = click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of the fleet, for TLS.  [default: ~/.config/wal-lab/fleet.pem, beyond this machine]",
)

INSECURE = click.option(
    "--insecure",
    is_flag=True,
    help="Without TLS: whoever reaches the scheduler runs code on every host of the fleet.",
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
    help="Build and run even where there is no sandbox: only for patches that you trust.",
)

OUTPUT = click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Where the results go: a directory that is not there or empty, else one below results/.",
)

SOURCE = click.option(
    "--source",
    help="Major version, directory, tarball, or DIRECTORY@REF of a local clone.  "
    "[default: the experiment's]",
)


def names_of(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """Read names with commas between them."""
    return tuple(name.strip() for name in value.split(",")) if value else None
