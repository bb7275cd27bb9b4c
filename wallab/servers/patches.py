"""Which patches a variant is of, for a source."""

import functools
import hashlib
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import LabError
from wallab.progress import say
from wallab.record import ownvariant
from wallab.record.ownvariant import OwnVariant
from wallab.record.series import Catalog, names
from wallab.servers.source import Source


class Patch(msgspec.Struct, frozen=True):
    """One patch file for one series."""

    name: str
    file: Path
    given: Path | None = None
    """The file that a user named, where that is another."""

    @property
    def origin(self) -> Path:
        """The file as people know it."""
        return self.given or self.file

    @property
    def sha256(self) -> str:
        """The file's SHA-256 in hexadecimal."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()


def own_patches(own: OwnVariant, folder: Path) -> list[Patch]:
    """Return the patches that an own variant adds; they lie in the folder."""
    return [Patch(patch.name, folder / patch.file, patch.given) for patch in own.patches]


def series_for(catalog: Catalog, source: Source) -> str:
    """Return the folder of patches for the source: one that was tested, else one that compiles.

    For a major that nobody tried, with a warning, the nearest; of two that are as near, the newer.
    """
    major = str(source.major)
    for kind in ("tested", "compiles"):
        for name, series in catalog.series.items():
            if major in getattr(series, kind):
                return name
    nearest = min(catalog.series, key=lambda name: (abs(int(name) - source.major), -int(name)))
    _warn(major, nearest)
    return nearest


@functools.cache
def _warn(major: str, nearest: str) -> None:
    """Say once that nobody tried."""
    say(
        f"warning: no series of patches was tried on PostgreSQL {major}; taking that of {nearest}, "
        "which may not apply"
    )


def patches_of(catalog: Catalog, variant: str, source: Source) -> list[Patch]:
    """Return the variant's patches for the source, in order; LabError if there is none such."""
    if (own := ownvariant.find(variant)) is not None:
        return [*patches_of(catalog, own.on, source), *own_patches(own, ownvariant.folder(variant))]
    known = catalog.variant.get(variant)
    if known is None:
        raise LabError(f"no variant “{variant}”; there are {', '.join(names(catalog))}, and all")
    if not known.patches:
        return []
    folder = paths.PATCHES / series_for(catalog, source)
    return [Patch(name, folder / f"{name}.patch") for name in known.patches]
