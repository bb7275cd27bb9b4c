"""A primary off the drives that lose power, for a standby that is on them."""

import signal
from pathlib import Path

from psycopg import sql

from wallab.machine import process
from wallab.machine.confinement import Places
from wallab.machine.ledger import Ledger
from wallab.powercut.bed import DrivePair, ask
from wallab.powercut.load import wait_until
from wallab.servers.cluster import NOTHING, Cluster

SIGNAL = "standby.signal"


class Primary:
    """A cluster with the content of a pair's template, which the standby starts from, too."""

    def __init__(self, pair: DrivePair, ledger: Ledger) -> None:
        self._pair = pair
        self._home = ledger.folder / f"primary-{pair.wal.filesystem}"
        self._home.mkdir(exist_ok=True)
        process.own(self._home)
        self.cluster = Cluster(
            self._home / "data",
            self._home / "data" / "pg_wal",
            ledger,
            pair.cluster.confinement,
            name=f"primary-{pair.wal.filesystem}",
        )

    def restore(self) -> None:
        """Bring the content back; the drives must have theirs, and be mounted."""
        data, wal = self._pair.cluster.data, self._pair.cluster.wal
        process.must_run(["rm", "-rf", "--", self.cluster.data], "rm")
        process.must_run(["cp", "-a", "--", data, self.cluster.data], "cp")
        # There it is a link to the other drive.
        process.must_run(["rm", "--", self.cluster.wal], "rm")
        process.must_run(["cp", "-a", "--", wal, self.cluster.wal], "cp")

    def start(self, server: Path, settings: dict[str, str]) -> None:
        """Start it; its commits wait for a standby that has flushed them."""
        own = {
            "fsync": "off",  # it is the standby that is to keep them
            "synchronous_standby_names": "*",
            "synchronous_commit": "on",
        }
        self.cluster.start(server, settings | own)

    def show(self) -> None:
        """Let the pair's cluster reach this one, which has been started, once it starts itself."""
        self._pair.cluster.beside = Places(readable=(self.cluster.socket,))

    def lead(self) -> None:
        """Have the pair's cluster, which is at work as a standby, follow this one from now on."""
        with self._pair.cluster.connect() as connection:
            where = sql.Literal(f"host={self.cluster.socket} user=postgres")
            connection.execute(sql.SQL("ALTER SYSTEM SET primary_conninfo = {}").format(where))
            connection.execute("SELECT pg_reload_conf()")
        self._wait_for_standby()

    def _wait_for_standby(self) -> None:
        """Wait until commits wait for the standby; LoadFailed if it does not come."""
        query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_until(lambda: ask(self.cluster, query) > 0, "the standby does not follow its primary")

    def stop(self) -> None:
        """End it at once: who waits for the standby is told nothing."""
        self.cluster.stop(signal.SIGQUIT)

    def clear(self) -> None:
        """Have nobody follow."""
        self.stop()
        self._pair.cluster.beside = NOTHING
