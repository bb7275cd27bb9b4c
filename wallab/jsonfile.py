"""JSON files of the lab: structures with paths in them, written whole or not at all."""

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Shape = TypeVar("Shape")


def _plain(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _from_plain(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)


def dumps(value: object) -> bytes:
    """Return the value as one line of JSON, with keys in their order."""
    return msgspec.json.encode(value, enc_hook=_plain)


def pretty(value: object) -> str:
    """Return the value as JSON for people."""
    return msgspec.json.format(dumps(value), indent=2).decode()


def loads(text: bytes | str, shape: type[Shape]) -> Shape:
    """Return what the JSON says; msgspec.MsgspecError if it is not of the shape."""
    return msgspec.json.decode(text, type=shape, dec_hook=_from_plain)


def save(file: Path, value: object) -> None:
    """Write the value to the file so that a crash leaves the old file or the new one."""
    partial = file.with_name(f".{file.name}.partial")
    try:
        with partial.open("w") as stream:
            stream.write(pretty(value) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def load(file: Path, shape: type[Shape]) -> Shape:
    """Read the file; OSError or msgspec.MsgspecError if that cannot be done."""
    return loads(file.read_bytes(), shape)
