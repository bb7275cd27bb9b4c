"""Installed trees compared: two builds with the same inputs should make the same one."""

import json
import stat
from pathlib import Path

RECORD = "build.json"
VARYING = frozenset({"seconds", "built"})
"""Fields of build.json in which builds with the same inputs differ: how long it took, and when."""


def differences(one: Path, other: Path) -> list[str]:
    """Return the relative paths that differ in kind, rights, content or target, or lack in one.

    Times are not looked at. OSError where a file cannot be read.
    """
    names = {str(file.relative_to(tree)) for tree in (one, other) for file in tree.rglob("*")}
    return sorted(name for name in names if not _alike(one / name, other / name))


def unexpected(one: Path, other: Path) -> list[str]:
    """Return what differs between two installed servers beside the varying fields of build.json.

    These are paths, and “build.json: FIELD”.
    """
    found = [name for name in differences(one, other) if name != RECORD]
    records = [json.loads((tree / RECORD).read_text()) for tree in (one, other)]
    fields = {field for record in records for field in record}
    return found + sorted(
        f"{RECORD}: {field}"
        for field in fields - VARYING
        if not all(field in record for record in records) or records[0][field] != records[1][field]
    )


def _alike(one: Path, other: Path) -> bool:
    try:
        modes = {one.lstat().st_mode, other.lstat().st_mode}
    except FileNotFoundError:
        return False
    if len(modes) > 1:
        return False
    mode = modes.pop()
    if stat.S_ISLNK(mode):
        return one.readlink() == other.readlink()
    return not stat.S_ISREG(mode) or one.read_bytes() == other.read_bytes()
