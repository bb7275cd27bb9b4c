"""A gate: statements wait before it until it opens, and do not end before."""

import contextlib
from collections.abc import Iterator

import psycopg

from wallab.powercut.load import wait_until
from wallab.powercut.shapes import Connection
from wallab.servers.cluster import Cluster


class Gate:
    """An advisory lock that a session of its own holds; who waits, waits for it shared."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self._connection = connection

    def wait_for(self, sessions: int) -> None:
        """Wait until so many sessions are before the gate; LoadFailed if they do not come."""
        wait_until(
            lambda: self._waiting() >= sessions,
            f"{sessions} statements did not come to their gate",
        )

    def _waiting(self) -> int:
        """Return how many sessions are before the gate."""
        row = self._connection.execute(
            "SELECT count(*) FROM pg_locks "
            "WHERE locktype = 'advisory' AND objid = %s AND NOT granted",
            (self.number,),
        ).fetchone()
        return int(row[0]) if row else 0

    def open(self) -> None:
        """Let them go on."""
        self._connection.execute("SELECT pg_advisory_unlock(%s)", (self.number,))


@contextlib.contextmanager
def closed(cluster: Cluster, number: int) -> Iterator[Gate]:
    """Close the gate of that number, until the block ends or the server goes away."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(cluster.connect())
        connection.execute("SELECT pg_advisory_lock(%s)", (number,))
        try:
            yield Gate(connection, number)
        finally:
            with contextlib.suppress(psycopg.Error):
                stack.close()
