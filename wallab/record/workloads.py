"""The workloads that an experiment may name, as far as their tables need to know them."""

from collections.abc import Callable

import msgspec

from wallab.errors import LabError
from wallab.record.experiment import Preset

TERMINALS = 10
"""For each warehouse of the workload tpcc (TPC-C, clause 4.2.2)."""

SCAN_ROWS = 100_000
"""Of one unit of scale of the workload scan: its source's table of 10.1 million rows is 101."""


def _pgbench(preset: Preset) -> str:
    amount = f"-T {preset.seconds}" if preset.seconds else f"-t {preset.transactions}"
    return f"pgbench -s {preset.scale} -c {preset.clients} {amount}"


def _scan(preset: Preset) -> str:
    return f"one cold sequential scan of {preset.scale * SCAN_ROWS:,} rows"


def _tpcc(preset: Preset) -> str:
    amount = f"{preset.seconds} s" if preset.seconds else f"-t {preset.transactions}"
    return (
        f"{amount}, {TERMINALS} terminals a warehouse, people {preset.pace} times "
        "faster than TPC-C's"
    )


class WorkloadKind(msgspec.Struct, frozen=True):
    """What a table says of a workload."""

    writes: bool = True
    """Whether its transactions write WAL, so that the WAL's counters explain its figures."""
    paced: bool = False
    """Whether its clients can be given a rate and a think time."""
    amount: Callable[[Preset], str] = _pgbench
    """Says in a few words what a sample is, for the table's second line."""


WORKLOADS = {
    "tpcb-like": WorkloadKind(paced=True),
    "simple-update": WorkloadKind(paced=True),
    "select-only": WorkloadKind(writes=False, paced=True),
    "bulk-insert": WorkloadKind(),
    "scan": WorkloadKind(writes=False, amount=_scan),
    "tpcc": WorkloadKind(amount=_tpcc),
    "bonnie": WorkloadKind(writes=False, amount=lambda preset: f"bonnie++ of {preset.files_mb} MB"),
    "sysbench": WorkloadKind(
        writes=False, amount=lambda preset: f"sysbench fileio of {preset.files_mb} MB"
    ),
}


def find(name: str) -> WorkloadKind:
    """Return the workload of that name; LabError if there is none."""
    if name not in WORKLOADS:
        raise LabError(f"unknown “{name}”; expected {', '.join(WORKLOADS)}")
    return WORKLOADS[name]
