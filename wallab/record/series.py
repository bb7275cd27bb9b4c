"""The patch series: which patches there are for a source, and which variants they make."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import LabError
from wallab.files.strict import read_toml
from wallab.record.openflags import METHODS
from wallab.servers import ownvariant
from wallab.servers.ownvariant import OwnVariant
from wallab.servers.source import Source


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
    expected: tuple[str, ...] = ()
    """Those that the patches should apply to."""


class Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """patches/series.toml."""

    variant: dict[str, Variant]
    series: dict[str, Series]


class Patch(msgspec.Struct, frozen=True):
    """One patch file for one series."""

    name: str
    file: Path
    given: Path | None = None
    """The file that a user named, where that is another."""

    @property
    def shown(self) -> Path:
        """The file as it is named to people."""
        return self.given or self.file

    @property
    def sha256(self) -> str:
        """The file's SHA-256 in hexadecimal."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()


def read(file: Path | None = None) -> Catalog:
    """Read patches/series.toml; LabError where it is wrong or names a missing patch."""
    file = file or paths.PATCHES / "series.toml"
    catalog = read_toml(file, Catalog)
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


def own_patches(own: OwnVariant, folder: Path) -> list[Patch]:
    """Return the patches that an own variant adds; they lie in the folder."""
    return [Patch(patch.name, folder / patch.file, patch.given) for patch in own.patches]


def series_for(catalog: Catalog, source: Source) -> str:
    """Return the folder of patches for the source: one that was tested, else one expected."""
    major = str(source.major)
    for kind in ("tested", "expected"):
        for name, series in catalog.series.items():
            if major in getattr(series, kind):
                return name
    newest = max(catalog.series, key=int)
    if source.major > int(newest) and "devel" in catalog.series[newest].expected:
        return newest
    covered = {major for s in catalog.series.values() for major in (*s.tested, *s.expected)}
    raise LabError(
        f"patches/series.toml has no series for PostgreSQL {major}; it covers "
        f"{', '.join(sorted(covered))}. Only the variant stock can be built from it."
    )


def patches_of(catalog: Catalog, variant: str, source: Source) -> list[Patch]:
    """Return the variant's patches for the source, in order; LabError if there is none such."""
    if (own := ownvariant.find(variant)) is not None:
        return [*patches_of(catalog, own.on, source), *own_patches(own, ownvariant.folder(variant))]
    found = catalog.variant.get(variant)
    if found is None:
        raise LabError(f"no variant “{variant}”; there are {', '.join(names(catalog))}, and all")
    if not found.patches:
        return []
    folder = paths.PATCHES / series_for(catalog, source)
    return [Patch(name, folder / f"{name}.patch") for name in found.patches]
