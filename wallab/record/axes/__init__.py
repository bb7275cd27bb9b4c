"""The axes that an experiment may have, each a module."""

from wallab.errors import LabError
from wallab.record.axes import (
    amount,
    archive,
    barriers,
    cpus,
    drive_profile,
    file_system,
    pacing,
    read_ahead,
    setting,
    source,
    sync,
    variant,
    workload,
    write_cache,
)
from wallab.record.axes.axis import Axis
from wallab.record.conditions import Choice

_KINDS: dict[str, type[Axis]] = {
    "variant": variant.VariantAxis,
    "source": source.SourceAxis,
    "write_cache": write_cache.WriteCacheAxis,
    "sync": sync.Sync,
    "profile": drive_profile.DriveProfile,
    "file_system": file_system.FileSystem,
    "barriers": barriers.Barriers,
    "read_ahead": read_ahead.ReadAhead,
    "cpus": cpus.Cpus,
    "workload": workload.WorkloadAxis,
    "archive": archive.Archive,
    "warehouses": amount.Warehouses,
    "scale": amount.Scale,
    "clients": amount.Clients,
    "rate": pacing.Rate,
    "think": pacing.Think,
}


def find(name: str) -> Axis:
    """Return the axis of that name; LabError if there is none."""
    if name.startswith(setting.PREFIX):
        return setting.Setting(name)
    if name not in _KINDS:
        known = ", ".join((*_KINDS, f"{setting.PREFIX}NAME"))
        raise LabError(f"unknown axis “{name}”; expected {known}")
    return _KINDS[name](name)


def apply(cell: dict[str, str], choice: Choice) -> Choice:
    """Write what the cell's values decide into the choice, and return it."""
    for name, value in cell.items():
        find(name).apply(value, choice)
    return choice
