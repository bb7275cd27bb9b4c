"""The axes that an experiment may have, each a module."""

from wallab.axes import (
    amount,
    cpus,
    drive_profile,
    file_system,
    read_ahead,
    setting,
    source,
    sync,
    variant,
    write_cache,
)
from wallab.axis import Axis
from wallab.conditions import Conditions
from wallab.errors import LabError

_KINDS: dict[str, type[Axis]] = {
    "variant": variant.Variant,
    "source": source.Source,
    "write_cache": write_cache.WriteCacheAxis,
    "sync": sync.Sync,
    "profile": drive_profile.DriveProfile,
    "file_system": file_system.FileSystem,
    "read_ahead": read_ahead.ReadAhead,
    "cpus": cpus.Cpus,
    "scale": amount.Scale,
    "clients": amount.Clients,
}


def find(name: str) -> Axis:
    """Return the axis of that name; LabError if there is none."""
    if name.startswith(setting.PREFIX):
        return setting.Setting(name)
    if name not in _KINDS:
        known = ", ".join((*_KINDS, f"{setting.PREFIX}NAME"))
        raise LabError(f"unknown axis “{name}”; expected {known}")
    return _KINDS[name](name)


def apply(cell: dict[str, str], conditions: Conditions) -> Conditions:
    """Write what the cell's values decide, in the order of its axes, and return the conditions."""
    for name, value in cell.items():
        find(name).apply(value, conditions)
    return conditions
