"""JSON files of the lab: structures with paths in them, written whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from wallab.errors import LabError

Shape = TypeVar("Shape")


def _plain(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _from_plain(kind: type, value: Any) -> Any:
    if kind is not Path:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return Path(value)


def dumps(value: object) -> bytes:
    """Return the value as one line of JSON, with keys in their order."""
    return msgspec.json.encode(value, enc_hook=_plain)


def pretty(value: object) -> str:
    """Return the value as JSON for people."""
    return msgspec.json.format(dumps(value), indent=2).decode()


def loads(text: bytes | str, shape: type[Shape]) -> Shape:
    """Return what the JSON says; msgspec.MsgspecError if it is not of the shape."""
    try:
        return msgspec.json.decode(text, type=shape, dec_hook=_from_plain)
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    except UnicodeDecodeError as error:  # whose place is that in a word of the file
        raise msgspec.DecodeError(f"not in UTF-8: byte {error.object[error.start]:#x}") from None


def save(file: Path, value: object) -> None:
    """Write the value to the file so that a crash leaves the old file or the new one.

    Once it returns it is the new one.
    """
    with _written(file, value) as partial:
        partial.replace(file)


def create(file: Path, value: object) -> None:
    """Write the value to a file that must not be there, whole or not; FileExistsError if it is."""
    with _written(file, value) as partial:
        file.hardlink_to(partial)


@contextlib.contextmanager
def _written(file: Path, value: object) -> Iterator[Path]:
    """Write the value to a file beside, which goes afterwards; then sync the folder."""
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        with partial.open("w") as stream:
            stream.write(pretty(value) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        yield partial
        sync_folder(file.parent)
    finally:
        partial.unlink(missing_ok=True)


def clear_partial(folder: Path) -> None:
    """Remove what processes that are gone left unfinished in the folder."""
    for partial in folder.glob(".*.partial"):
        maker = partial.name.split(".")[-2]
        if maker.isdecimal() and not psutil.pid_exists(int(maker)):
            partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in the folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(file: Path, shape: type[Shape]) -> Shape:
    """Read the file; OSError or msgspec.MsgspecError if that cannot be done."""
    return loads(file.read_bytes(), shape)


def read(file: Path, shape: type[Shape], remedy: str) -> Shape:
    """Read a file that the lab wrote; LabError with the remedy if that cannot be done."""
    try:
        return load(file, shape)
    except OSError as error:
        raise LabError(f"{file}: {error.strerror}; {remedy}") from None
    except msgspec.MsgspecError as error:
        raise LabError(f"{file}: {error}; {remedy}") from None
