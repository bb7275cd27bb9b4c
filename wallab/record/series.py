"""patches/series.toml: the lab's variants, and the majors that its folders of patches are for."""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import LabError
from wallab.files.strict import read_toml
from wallab.record import ownvariant
from wallab.record.openflags import METHODS


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named list of patches."""

    title: str
    """As the thread wrote it in its table."""
    about: str
    patches: tuple[str, ...]
    direct: tuple[str, ...] = ()
    """The wal_sync_methods that take O_DIRECT by it, and would not by their name."""


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The majors that a folder of patches is for."""

    tested: tuple[str, ...] = ()
    """Those of which the lab built every variant and ran its Perl tests on them."""
    compiles: tuple[str, ...] = ()
    """Those that every variant applies to and compiles on, no more."""


class Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """patches/series.toml."""

    variant: dict[str, Variant]
    series: dict[str, Series]


def read(file: Path | None = None) -> Catalog:
    """Read patches/series.toml; LabError where it is wrong or names a missing patch."""
    file = file or paths.PATCHES / "series.toml"
    catalog = read_toml(file, Catalog)
    for key, tables in (("variant", catalog.variant), ("series", catalog.series)):
        if not tables:
            raise LabError(f"{file}: {key}: expected a table {key}.NAME or more")
    for name in catalog.series:
        if not re.fullmatch(r"[1-9][0-9]{0,3}", name):
            raise LabError(f"{file}: series.{name}: expected a major version of PostgreSQL")
    for name, variant in catalog.variant.items():
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
            raise LabError(f"{file}: variant.{name}: a name is of a-z, 0-9, “.”, “_” and “-”")
        for method in variant.direct:
            if method not in METHODS:
                raise LabError(
                    f"{file}: variant.{name}.direct: unknown method “{method}”; expected one of "
                    f"{', '.join(METHODS)}"
                )
        for patch in variant.patches:
            # One that no file system takes is an error of its own there.
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", patch):
                raise LabError(
                    f"{file}: variant.{name}.patches: “{patch[:40]}” is no name of a patch: at "
                    "most 100 of a-z, A-Z, 0-9, “.”, “_” and “-”"
                )
            for series in catalog.series:
                if not (file.parent / series / f"{patch}.patch").is_file():
                    raise LabError(
                        f"{file}: variant.{name}.patches: there is no {series}/{patch}.patch"
                    )
    return catalog


def names(catalog: Catalog) -> list[str]:
    """Return the variants' names: the lab's, then the user's own."""
    return [*catalog.variant, *ownvariant.every()]


def direct_methods(catalog: Catalog, variants: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return variant -> its `direct`, without those that have none; an own one has its base's."""
    bases = {variant: own.on for variant, own in ownvariant.every().items()}
    methods = {}
    for variant in variants:
        base = variant
        while base in bases:
            base = bases[base]
        if base in catalog.variant and catalog.variant[base].direct:
            methods[variant] = catalog.variant[base].direct
    return methods
