"""Directories of runs and of campaigns: the one that a user means, and a new one."""

from pathlib import Path
from typing import TypeVar

import msgspec

from wallab import paths
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.files.timestamp import utc

Shape = TypeVar("Shape")
Value = TypeVar("Value")


def find(name: str, record: str, what: str, maker: str) -> Path:
    """Return a directory: a path, a name below results/, or the latest that has the record.

    LabError if there is none; `what` is made by the script `maker`.
    """
    if name == "latest":
        records = sorted(paths.RESULTS.glob(f"2*/{record}"))
        if not records:
            raise LabError(f"there is no {what} in {paths.RESULTS}; {maker} makes one")
        return records[-1].parent
    for folder in (Path(name), paths.RESULTS / name):
        if folder.is_dir():
            return folder
    raise LabError(f"no {what} “{name}”: name a directory below {paths.RESULTS}, or latest")


def load(folder: Path, record: str, shape: type[Shape], what: str) -> Shape:
    """Read the record of a directory; LabError if it is none of the kind."""
    file = folder / record
    try:
        return jsonfile.load(file, shape)
    except OSError as error:
        raise LabError(f"{folder}: no {what} ({record}: {error.strerror})") from None
    except msgspec.MsgspecError as error:
        raise LabError(f"{file}: {error}") from None


def new(output: Path | None, label: str) -> Path:
    """Return the directory for something new: what the user names, else one below results/.

    LabError if what the user names has something in it.
    """
    if output is None:
        stamp = utc().replace("-", "").replace(":", "").replace("T", "-").rstrip("Z")
        folder = paths.RESULTS / f"{stamp}-{label}"
        number = 2
        while folder.exists():
            folder = paths.RESULTS / f"{stamp}-{label}-{number}"
            number += 1
        return folder
    if output.is_dir():
        # A kill may have come before the first file was whole.
        jsonfile.clear_partial(output)
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise LabError(f"{output} is there already; name another --output, or --resume it")
    return output


def kept(option: str, asked: Value | None, before: Value) -> Value:
    """Return what the run or campaign to resume has; LabError if something else is asked for."""
    if asked is not None and asked != before:
        raise LabError(f"{option}: the run to resume has its own; start a new one instead")
    return before
