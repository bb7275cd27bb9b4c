"""Installed trees compared: two builds with the same inputs should make the same one."""

import json
import stat
from pathlib import Path

RECORD = "build.json"
VARYING = frozenset({"seconds", "built"})
"""Fields of build.json in which builds with the same inputs differ: how long it took, and when."""


def differences(server: Path, other: Path) -> list[str]:
    """Return the relative paths that differ in kind, rights, content or target, or lack in one.

    Times are not looked at. OSError where a file cannot be read.
    """
    names = {str(file.relative_to(tree)) for tree in (server, other) for file in tree.rglob("*")}
    return sorted(name for name in names if not _alike(server / name, other / name))


def unexpected(server: Path, other: Path) -> list[str]:
    """Return what differs between two installed servers beside the varying fields of build.json.

    These are paths, and “build.json: FIELD”.
    """
    names = [name for name in differences(server, other) if name != RECORD]
    records = [json.loads((tree / RECORD).read_text()) for tree in (server, other)]
    fields = {field for record in records for field in record}
    return names + sorted(
        f"{RECORD}: {field}"
        for field in fields - VARYING
        if not all(field in record for record in records) or records[0][field] != records[1][field]
    )


def _alike(path: Path, other: Path) -> bool:
    try:
        modes = {path.lstat().st_mode, other.lstat().st_mode}
    except FileNotFoundError:
        return False
    if len(modes) > 1:
        return False
    mode = modes.pop()
    if stat.S_ISLNK(mode):
        return path.readlink() == other.readlink()
    return not stat.S_ISREG(mode) or path.read_bytes() == other.read_bytes()
