"""Strict reading of TOML files into frozen structures."""

import copy
import tomllib
from pathlib import Path
from typing import Any, TypeVar

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
        raise LabError(f"{file}: {_explain(data, shape, str(error))}") from None


def _explain(data: dict[str, Any], shape: Any, message: str) -> str:
    """Put the key in front: “Expected `int`, got `str` - at `$.a.b`” → “a.b: expected …”."""
    said, _, path = message.partition(" - at ")
    key = path.strip("`").removeprefix("$").removeprefix(".")
    for name in _tables(data, shape, message, key):
        key = key.replace("[...]", f".{name}", 1)
    said = said[:1].lower() + said[1:]
    return f"{key}: {said}" if key else said


def _tables(data: dict[str, Any], shape: Any, message: str, key: str) -> list[str]:
    """Return the names of the tables that the key has as “[...]”, one after the other.

    The culprit is the table that gives the same error without its siblings.
    """
    names: list[str] = []
    while key.count("[...]") > len(names):
        parents: list[str] = []
        for number, part in enumerate(key.split("[...]")[: len(names) + 1]):
            parents += [*names[number - 1 : number], *filter(None, part.split("."))]
        for name in _at(data, parents):
            alone = copy.deepcopy(data)
            siblings = _at(alone, parents)
            for other in [other for other in siblings if other != name]:
                del siblings[other]
            try:
                msgspec.convert(alone, shape)
            except msgspec.ValidationError as error:
                if str(error) == message:
                    names.append(name)
                    break
        else:
            break
    return names


def _at(data: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Return the table below these keys; an empty one if there is none."""
    for key in keys:
        found = data.get(key)
        if not isinstance(found, dict):
            return {}
        data = found
    return data
