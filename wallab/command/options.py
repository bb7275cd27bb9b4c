"""Options that several commands have, declared once."""

from pathlib import Path

import click

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
