"""Why a machine, or a server, cannot have a value of an axis, so that a cell is N/A."""

import os
from collections.abc import Callable

from wallab.bench import workloads
from wallab.bench.installed import Installed
from wallab.machine import mounts
from wallab.record.axes.setting import PREFIX
from wallab.record.axes.sync import FSYNC_OFF, LACKS
from wallab.record.conditions import Conditions
from wallab.servers import cluster

Reason = Callable[[str, Conditions, Installed], str]


def _cpus(value: str, conditions: Conditions, servers: Installed) -> str:
    have = len(os.sched_getaffinity(0))
    return "" if int(value) <= have else f"this machine has {have} CPUs"


def _file_system(value: str, conditions: Conditions, servers: Installed) -> str:
    return "" if mounts.kernel_knows(value) else f"this kernel has no {value}"


def _sync(value: str, conditions: Conditions, servers: Installed) -> str:
    known = value == FSYNC_OFF or value in servers.methods[conditions.server]
    return "" if known else LACKS


def _workload(value: str, conditions: Conditions, servers: Installed) -> str:
    return workloads.find(value).lacking()


_REASONS: dict[str, Reason] = {
    "cpus": _cpus,
    "file_system": _file_system,
    "sync": _sync,
    "workload": _workload,
}


def reason(axis: str, value: str, conditions: Conditions, servers: Installed) -> str:
    """Say why the value cannot be had here; nothing if it can."""
    if axis in _REASONS:
        return _REASONS[axis](value, conditions, servers)
    name = axis.removeprefix(PREFIX)
    # What an extension knows is known when it is loaded.
    if name == axis or "." in name:
        return ""
    server = servers.paths[conditions.server]
    if cluster.has_setting(server, name, value, servers.confinement):
        return ""
    return f"the server does not take {name} = {value}"
