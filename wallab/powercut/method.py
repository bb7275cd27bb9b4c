"""wal_sync_method of a running server, changed by a reload."""

from wallab.powercut.bed import ask
from wallab.powercut.load import wait_until
from wallab.servers.cluster import Cluster


def change(cluster: Cluster, method: str) -> None:
    """Change it as an administrator does, and wait until new sessions have it.

    Those that are there follow when they get to it. LoadFailed if the server does not follow.
    """
    with cluster.connect() as connection:
        # A name of a closed list; ALTER SYSTEM takes no parameters.
        connection.execute(f"ALTER SYSTEM SET wal_sync_method = '{method}'".encode())
        connection.execute("SELECT pg_reload_conf()")
    wait_until(
        lambda: ask(cluster, "SHOW wal_sync_method") == method,
        f"a reload did not make wal_sync_method {method}",
    )
