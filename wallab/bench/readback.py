"""What is in force while a server runs: the value of each axis, as the machine tells it."""

import os
import shlex
from collections.abc import Callable, Iterable

from wallab.bench.stage import Stage
from wallab.machine import mounts
from wallab.record.axes.setting import PREFIX


def _archive(stage: Stage) -> str:
    with stage.cluster.connect() as connection:
        row = connection.execute(
            "SELECT current_setting('archive_mode'), current_setting('archive_command')"
        ).fetchone()
    assert row is not None
    mode, command = row
    return shlex.split(str(command))[0].rsplit("/")[-1] if mode == "on" else "off"


def _barriers(stage: Stage) -> str:
    """Return on if the kernel flushes any of the drives."""
    for drive in stage.drives.values():
        flushes = drive.write_cache()["kernel"] == "write back"
        options = mounts.options(drive.mount_point)
        if flushes and not {"nobarrier", "barrier=0"} & set(options):
            return "on"
    return "off"


def _cpus(stage: Stage) -> str:
    return str(len(os.sched_getaffinity(stage.cluster.postmaster())))


def _each(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values}))


def _setting(stage: Stage, name: str) -> str:
    """Return the value as asked if the server holds just that, in whatever unit it shows."""
    with stage.cluster.connect() as connection:
        row = connection.execute(
            "SELECT setting, current_setting(name) FROM pg_settings WHERE name = %s", [name]
        ).fetchone()
    if row is None:
        return ""
    asked = stage.conditions.settings[name]
    return asked if asked in row else str(row[1])


_READ: dict[str, Callable[[Stage], str]] = {
    "archive": _archive,
    "barriers": _barriers,
    "cpus": _cpus,
    "profile": lambda stage: _each(drive.profile for drive in stage.drives.values()),
    "file_system": lambda stage: _each(
        mounts.kind(drive.mount_point) for drive in stage.drives.values()
    ),
    "read_ahead": lambda stage: _each(drive.read_ahead() for drive in stage.drives.values()),
}


def read_back(axes: Iterable[str], stage: Stage) -> dict[str, str]:
    """Return axis -> the value in force, without axes of which other fields of a sample tell."""
    values: dict[str, str] = {}
    for axis in axes:
        if axis in _READ:
            values[axis] = _READ[axis](stage)
        elif axis.startswith(PREFIX):
            values[axis] = _setting(stage, axis.removeprefix(PREFIX))
    return values
