"""Templates: the clusters that samples start from, loaded while the drives take no time."""

import time
from typing import Any

import psycopg

from wallab.bench import workloads
from wallab.bench.installed import plain
from wallab.bench.pgbench import Pgbench
from wallab.bench.stage import Stage
from wallab.errors import LabError
from wallab.machine import process
from wallab.record.conditions import Conditions

RECYCLED = 10
"""Segments that are filled once, so that samples reuse them instead of making new ones."""


def folder_name(conditions: Conditions) -> str:
    """Return the name of the template's folders on its drives."""
    return plain("-".join(filter(None, (conditions.source, str(conditions.scale)))))


def make(
    stage: Stage, workload: str, settings: dict[str, str], initdb: tuple[str, ...]
) -> dict[str, Any]:
    """Make the stage's cluster with the workload's data, and stop it; return what it is.

    `initdb` are further options of initdb. LabError if it fails, or the data cannot be loaded.
    """
    begun = time.monotonic()
    cluster, server = stage.cluster, stage.server
    process.make_folders(cluster.data.parent, cluster.wal.parent, stage.archive)
    cluster.create(server, *initdb)
    cluster.start(server, settings | {"max_wal_size": "4GB"})
    try:
        workloads.find(workload).load(server, cluster, stage.conditions.scale)
    except psycopg.Error as error:
        scale = stage.conditions.scale
        raise LabError(f"the data of scale {scale} cannot be loaded: {error}") from None
    cluster.stop()
    # Once more with the run's own settings, so that the segments kept for reuse are those
    # that such a server keeps, and none is created while a sample is measured.
    cluster.start(server, settings)
    with cluster.connect() as connection:
        for _ in range(RECYCLED):
            connection.execute("SELECT pg_logical_emit_message(false, 'wallab', 'segment')")
            connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")
    particulars = cluster.particulars()
    cluster.stop()
    return {
        "made_by": stage.conditions.server,
        "pgbench": Pgbench(server, cluster).version(),
        **particulars,
        "bytes": cluster.read_into_memory(),
        "wal_segments": cluster.segments(),
        "seconds": round(time.monotonic() - begun, 1),
    }
