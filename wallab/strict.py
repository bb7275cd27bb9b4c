"""Strict reading of TOML files into frozen structures."""

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from wallab.errors import LabError

Shape = TypeVar("Shape")


def read_toml(file: Path, shape: type[Shape]) -> Shape:
    """Read the file into the shape, a msgspec structure that forbids unknown fields.

    LabError names the file, the key and what was expected.
    """
    try:
        data = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise LabError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"{file}: {error}") from None
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise LabError(f"{file}: {explain(str(error))}") from None


def explain(message: str) -> str:
    """Put the key in front: “Expected `int`, got `str` - at `$.a.b`” → “a.b: expected …”."""
    said, _, path = message.partition(" - at ")
    key = path.strip("`").removeprefix("$").removeprefix(".")
    said = said[:1].lower() + said[1:]
    return f"{key}: {said}" if key else said
