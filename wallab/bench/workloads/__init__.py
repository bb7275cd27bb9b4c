"""What the clients do: the workloads that an experiment may name, each a module."""

from wallab.bench.workloads import bonnie, builtin, bulk, scan, sysbench, tpcc
from wallab.bench.workloads.base import Workload
from wallab.errors import LabError

_KINDS: dict[str, Workload] = {
    name: builtin.Builtin(name) for name in ("tpcb-like", "simple-update", "select-only")
} | {
    "bulk-insert": bulk.BulkInsert(),
    "scan": scan.Scan(),
    "tpcc": tpcc.Tpcc(),
    "bonnie": bonnie.Bonnie(),
    "sysbench": sysbench.Sysbench(),
}


def find(name: str) -> Workload:
    """Return the workload of that name; LabError if there is none."""
    if name not in _KINDS:
        raise LabError(f"unknown “{name}”; expected {', '.join(_KINDS)}")
    return _KINDS[name]
