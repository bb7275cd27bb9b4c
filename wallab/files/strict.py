"""Strict reading of TOML files into frozen structures."""

import copy
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from wallab.errors import LabError

Shape = TypeVar("Shape")

_TOO_LARGE = "expected a number of 64 bits"


def read_toml(file: Path, shape: type[Shape]) -> Shape:
    """Read the file into the shape, a msgspec structure that forbids unknown fields.

    LabError names the file, the key and what was expected.
    """
    try:
        return _converted(_parsed(file), shape, file)
    except RecursionError:
        raise LabError(f"{file}: tables or arrays are nested too deeply") from None


def read_text(file: Path) -> str:
    """Read the file; LabError where there is none, or it is not in UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LabError(f"{file}: no such file") from None
    except OSError as error:
        raise LabError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise LabError(f"{file}: byte {error.start}: expected text in UTF-8") from None


def _parsed(file: Path) -> dict[str, Any]:
    text = read_text(file)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{file}: {error}") from None
    except ValueError:
        # Python reads no number that is longer, and does not say where it stands.
        lines = enumerate(text.splitlines(), 1)
        long = [number for number, line in lines if re.search(r"[\d_]{4301}", line)]
        raise LabError(f"{file}: line {long[0] if long else '?'}: {_TOO_LARGE}") from None


def _converted(data: dict[str, Any], shape: type[Shape], file: Path) -> Shape:
    if (key := _large_number(data)) is not None:
        raise LabError(f"{file}: {key}: {_TOO_LARGE}")
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise LabError(f"{file}: {_explain(data, shape, str(error))}") from None


def _large_number(data: Any) -> str | None:
    """Return the key of a whole number that is larger than TOML has, if there is one."""
    if isinstance(data, int):
        return None if -(2**63) <= data < 2**63 else ""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        if (below := _large_number(value)) is not None:
            return f"{key}.{below}" if below else str(key)
    return None


def _explain(data: dict[str, Any], shape: Any, message: str) -> str:
    """Put the key in front: “Expected `int`, got `str` - at `$.a.b`” → “a.b: expected …”."""
    # The place comes last; a key that is told before may have such words in it.
    place = re.fullmatch(r"(.*) - at `\$(.*)`", message, re.DOTALL)
    reason, key = (place[1], place[2].removeprefix(".")) if place else (message, "")
    for name in _tables(data, shape, message, key):
        key = key.replace("[...]", f".{name}", 1)
    reason = reason[:1].lower() + reason[1:]
    return f"{key}: {reason}" if key else reason


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
                    data = alone  # others may have the same mistake
                    break
        else:
            break
    return names


def _at(data: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Return the table below these keys; an empty one if there is none."""
    for key in keys:
        table = data.get(key)
        if not isinstance(table, dict):
            return {}
        data = table
    return data
