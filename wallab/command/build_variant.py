"""scripts/build-variant: build patched servers."""

import sys
from pathlib import Path

import click
import msgspec

from wallab import builder, buildsystem, jsonfile, paths, series, source
from wallab.command import outcome
from wallab.errors import LabError
from wallab.progress import duration, say

EPILOG = """\b
Examples:
  scripts/build-variant both                     PostgreSQL 18 with both patches
  scripts/build-variant all --source 18          every variant of patches/series.toml
  scripts/build-variant stock --source ~/postgresql
  scripts/build-variant both --source ~/postgresql@REL_18_STABLE
  scripts/build-variant --list
"""


def how_to_start(server: builder.Server) -> str:
    """Say where the server is and how to start it by hand."""
    build = server.build
    patches = ", ".join(patch.name for patch in build.patches) or "no patch"
    state = f"built in {duration(build.seconds)}" if server.fresh else "up to date"
    path = server.path
    return (
        f"{build.variant}: PostgreSQL {build.version} with {patches} ({state})\n"
        f"  {path}\n"
        f"  start it, as a user other than root:\n"
        f"    {path}/bin/initdb -D DIRECTORY\n"
        f"    {path}/bin/pg_ctl -D DIRECTORY -l DIRECTORY/log start"
    )


def listing(catalog: series.Catalog) -> str:
    """List the variants and series."""
    lines = ["Variants:"]
    width = max(map(len, catalog.variant))
    lines += [f"  {name:{width}}  {one.about}" for name, one in catalog.variant.items()]
    lines.append("Series (PostgreSQL majors):")
    for name, one in catalog.series.items():
        expected = ", ".join(one.expected) or "none"
        lines.append(
            f"  {name}: tested with {', '.join(one.tested) or 'none'}; expected to fit: {expected}"
        )
    return "\n".join(lines)


@click.command(epilog=EPILOG)
@click.argument("variant", nargs=-1)
@click.option(
    "--source",
    "source_name",
    default=lambda: source.default("18"),
    show_default="18",
    help="Major version, directory, tarball, or DIRECTORY@REF of a local clone.",
)
@click.option(
    "--build-system",
    "system",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "meson", "autoconf"]),
)
@click.option("--list", "list_only", is_flag=True, help="List variants and series, build nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the servers as JSON.")
def command(
    variant: tuple[str, ...], source_name: str, system: str, list_only: bool, as_json: bool
) -> None:
    """Build the VARIANTs of a PostgreSQL source, or `all` of them, as installed servers."""
    catalog = series.read()
    if list_only:
        print(listing(catalog))
        return
    if not variant:
        raise LabError(f"name a variant: {', '.join(catalog.variant)}, or all")
    names = list(dict.fromkeys(variant))
    if "all" in names:
        names = list(catalog.variant)
    for name in names:
        if name not in catalog.variant:
            raise LabError(f"no variant “{name}”; there are {', '.join(catalog.variant)}, and all")
    found = source.resolve(source_name)
    variants = {name: series.patches_of(catalog, name, found) for name in names}
    built = builder.Builder(found, buildsystem.choose(system, found)).build(variants)
    if as_json:
        print(jsonfile.pretty(built))
        return
    for server in built:
        relative = server.path
        if Path.cwd() == paths.LAB:
            relative = server.path.relative_to(paths.LAB)
        print(how_to_start(msgspec.structs.replace(server, path=relative)))
    if not any(server.fresh for server in built):
        say("nothing to build")


if __name__ == "__main__":
    sys.exit(outcome.run(command, "build-variant"))
