"""Variants of a reviewer's own, as they are kept: build/variants/<name>/variant.json."""

import re
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import LabError
from wallab.files import jsonfile

RECORD = "variant.json"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


class OwnPatch(msgspec.Struct, frozen=True):
    """One patch of an own variant."""

    name: str
    file: str
    """In the variant's folder."""
    sha256: str
    subject: str
    author: str
    given: Path
    """The file that it was read from."""


class OwnVariant(msgspec.Struct, frozen=True):
    """build/variants/<name>/variant.json."""

    name: str
    on: str
    """The variant that the patches go on."""
    patches: tuple[OwnPatch, ...]
    made: str
    """When, UTC."""
    source: str = ""
    """What the patches were made a variant of, as --source has it; earlier records lack it."""

    @property
    def about(self) -> str:
        """What it is, in a line."""
        subjects = [patch.subject or patch.name for patch in self.patches]
        where = f"{self.on} of source {self.source}" if self.source else self.on
        return f"on {where}: {'; '.join(subjects)}"


def folder(name: str) -> Path:
    """Return where the variant's record and patches are."""
    return paths.BUILD / "variants" / name


def every() -> dict[str, OwnVariant]:
    """Return the own variants by name."""
    files = sorted((paths.BUILD / "variants").glob(f"[a-z0-9]*/{RECORD}"))
    return {file.parent.name: _load(file) for file in files}


def find(name: str) -> OwnVariant | None:
    """Return the own variant of that name, if there is one."""
    file = folder(name) / RECORD
    return _load(file) if NAME.fullmatch(name) and file.is_file() else None


def _load(file: Path) -> OwnVariant:
    try:
        return jsonfile.load(file, OwnVariant)
    except (OSError, msgspec.MsgspecError) as error:
        raise LabError(
            f"{file}: {error}; remove the variant: scripts/build-variant --remove "
            f"{file.parent.name}"
        ) from None
