"""scripts/build-variant: build patched servers."""

import sys
from pathlib import Path

import click
import msgspec

from wallab import paths
from wallab.command import options, outcome
from wallab.duration import duration
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import ledger
from wallab.progress import say
from wallab.record import series
from wallab.record.ownvariant import every, find
from wallab.servers import (
    buildsystem,
    checkresult,
    ownvariant,
    patchfile,
    source,
    suite,
    variantname,
)
from wallab.servers import checks as checking
from wallab.servers.builder import Builder, Server
from wallab.servers.patches import Patch, own_patches, patches_of

EPILOG = """\b
Examples:
  scripts/build-variant both                     PostgreSQL 18 with both patches
  scripts/build-variant all --source 18          every variant of patches/series.toml
  scripts/build-variant stock --source ~/postgresql
  scripts/build-variant both --source ~/postgresql@REL_18_STABLE
  scripts/build-variant both --check             and run the tree's own tests on it
  scripts/build-variant both --check --suite recovery --suite src/bin/pg_basebackup
  scripts/build-variant --patch v3-000*.patch --name foo
                                                 a variant of your own, the patches in order
  scripts/build-variant --patch v3-000*.patch    named by its subject
  scripts/build-variant --patch x.diff --name x --on both --check
  scripts/build-variant --remove foo             with its servers
  scripts/build-variant --list
"""


class Wanted(msgspec.Struct, frozen=True):
    """Variants of one source, and what builds them."""

    maker: Builder
    variants: dict[str, list[Patch]]


def how_to_start(server: Server) -> str:
    """Say where the server is and how to start it by hand."""
    build = server.build
    own = find(build.variant)
    of = f", source {own.source}" if own and own.source else ""
    patches = ", ".join(patch.name for patch in build.patches) or "no patch"
    state = f"built in {duration(build.seconds)}" if server.fresh else "up to date"
    path = server.path
    return (
        f"{build.variant}: PostgreSQL {build.version} with {patches} ({state}{of})\n"
        f"  {path}\n"
        f"  start it, as a user other than root:\n"
        f"    {path}/bin/initdb -D DIRECTORY\n"
        f"    {path}/bin/pg_ctl -D DIRECTORY -l DIRECTORY/log start"
    )


def listing(catalog: series.Catalog) -> str:
    """List the variants and series."""
    lines = ["Variants:"]
    width = max(map(len, catalog.variant))
    lines += [f"  {name:{width}}  {variant.about}" for name, variant in catalog.variant.items()]
    lines.append("Series (PostgreSQL majors):")
    for name, majors in catalog.series.items():
        fits = [("tested with", majors.tested), ("applies to and compiles on", majors.compiles)]
        fit = "; ".join(f"{how} {', '.join(which)}" for how, which in fits if which)
        lines.append(f"  {name}: {fit or 'not tried'}")
    if own := every():
        lines.append("Your own:")
        lines += [f"  {name:{width}}  {variant.about}" for name, variant in own.items()]
    return "\n".join(lines)


def relative(path: Path) -> Path:
    """Return the path for people: a relative one in the lab's own folder."""
    inside = Path.cwd() == paths.LAB and path.is_relative_to(paths.LAB)
    return path.relative_to(paths.LAB) if inside else path


def report(built: list[Server], *, as_json: bool) -> int:
    """Print where the servers are."""
    if as_json:
        print(jsonfile.pretty(built))
        return 0
    for server in built:
        print(how_to_start(msgspec.structs.replace(server, path=relative(server.path))))
    if not any(server.fresh for server in built):
        say("nothing to build")
    return 0


def check(
    wanted: list[Wanted], built: list[Server], suites: tuple[str, ...], *, as_json: bool
) -> int:
    """Check the servers one after the other and print the results; 1 if a test failed."""
    results = []
    asked = [(each.maker, patches) for each in wanted for patches in each.variants.values()]
    for (maker, patches), server in zip(asked, built, strict=True):
        result = checking.check(maker, server, patches, suites)
        results.append(result)
        if not as_json:
            print(checkresult.text(result, relative(checkresult.folder_of(server))), flush=True)
    if as_json:
        print(jsonfile.pretty(results))
    return 1 if any(result.failed for result in results) else 0


def builder_of(source_name: str, system: str) -> Builder:
    """Return the builder for a source and build system by name; clear what a kill left behind."""
    for line in ledger.clear_dead():
        say(f"left behind by an earlier run: {line}")
    tree = source.resolve(source_name)
    return Builder(tree, buildsystem.choose(system, tree))


def chosen(variant: tuple[str, ...], catalog: series.Catalog) -> list[str]:
    """Return the named variants, each once; LabError for none, and for unknown ones."""
    known = series.names(catalog)
    if not variant:
        raise LabError(f"name a variant: {', '.join(known)}, or all")
    for name in variant:
        if name not in (*known, "all"):
            raise LabError(f"no variant “{name}”; there are {', '.join(known)}, and all")
    return list(catalog.variant) if "all" in variant else list(dict.fromkeys(variant))


def by_source(names: list[str], given: str | None) -> dict[str, list[str]]:
    """Return the variants by what they are built from: what is given, else each one's own."""
    asked: dict[str, list[str]] = {}
    for name in names:
        own = find(name)
        remembered = own.source if own else ""
        asked.setdefault(given or remembered or source.default("18"), []).append(name)
    return asked


def patch_files(named: tuple[Path, ...], arguments: tuple[str, ...]) -> list[Path]:
    """Return the patches in their order: --patch A B C, or --patch A --patch B --patch C."""
    if len(named) > 1 and arguments:
        raise LabError(
            f"“{arguments[0]}”: where does it stand among the patches? Name all behind one "
            "--patch, or put --patch before each"
        )
    return [*named, *map(Path, arguments)]


@click.command(epilog=EPILOG)
@click.argument("variant", nargs=-1)
@click.option(
    "--source",
    "source_name",
    help="Major version, directory, tarball, or DIRECTORY@REF of a local clone.  [default: what a "
    "variant of your own was made of, else 18]",
)
@options.BUILD_SYSTEM
@options.NO_SANDBOX
@click.option(
    "--patch",
    "patches",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE…",
    help="Make a variant of your own: git format-patch mails, mailboxes, or diffs, in order.",
)
@click.option(
    "--name",
    help="What your variant is called; an earlier one of that name goes.  [default: its subject]",
)
@click.option("--on", help="The variant that your patches go on.  [default: stock]")
@click.option("--remove", metavar="NAME", help="Remove a variant of your own and its servers.")
@click.option("--check", "to_check", is_flag=True, help="Run the tree's own tests on them.")
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="SUITE",
    help=f"With --check: {', '.join([*suite.FOLDERS, suite.METHODS])} (the WAL's tests with each "
    "wal_sync_method), or a folder of the tree with t/*.pl; else all that have a name.",
)
@click.option("--list", "list_only", is_flag=True, help="List variants and series, build nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the servers as JSON.")
def command(
    variant: tuple[str, ...],
    source_name: str | None,
    build_system: str,
    patches: tuple[Path, ...],
    name: str | None,
    on: str | None,
    remove: str | None,
    to_check: bool,
    suites: tuple[str, ...],
    list_only: bool,
    as_json: bool,
) -> int:
    """Build the VARIANTs of a PostgreSQL source, or `all` of them, as installed servers."""
    catalog = series.read()
    if list_only:
        print(listing(catalog))
        return 0
    if suites and not to_check:
        raise LabError("--suite chooses what --check runs; add --check")
    if remove:
        if variant or patches:
            raise LabError("--remove takes a name and nothing else")
        for path in ownvariant.remove(remove):
            print(f"removed {relative(path)}")
        return 0
    known = (*suite.FOLDERS, suite.METHODS)
    suites = tuple(dict.fromkeys(suites)) or known
    if patches or name or on:
        files = patch_files(patches, variant)
        if not patches:
            raise LabError("a variant of your own takes --patch FILE…")
        on = on or "stock"
        if not name:
            name = variantname.of([patch for file in files for patch in patchfile.read(file)])
            say(f"its name is {name}, by its subject; --name gives it another")
        ownvariant.check_name(name, on, catalog.variant)
        ((source_name, _),) = by_source([on], source_name).items()
        maker = builder_of(source_name, build_system)
        below = patches_of(catalog, on, maker.source)
        of = source.recorded(source_name, maker.source)
        with ownvariant.added(name, on, files, of) as (own, folder):
            variants = {name: below + own_patches(own, folder)}
            suite.refuse_unknown(suites, maker.source, variants.values())
            built = maker.build(variants)
        wanted = [Wanted(maker, {name: patches_of(catalog, name, maker.source)})]
    else:
        wanted = []
        for of, names in by_source(chosen(variant, catalog), source_name).items():
            maker = builder_of(of, build_system)
            variants = {name: patches_of(catalog, name, maker.source) for name in names}
            suite.refuse_unknown(suites, maker.source, variants.values())
            wanted.append(Wanted(maker, variants))
        built = [server for each in wanted for server in each.maker.build(each.variants)]
    if to_check:
        return check(wanted, built, suites, as_json=as_json)
    return report(built, as_json=as_json)


if __name__ == "__main__":
    sys.exit(outcome.run(command, "build-variant"))
