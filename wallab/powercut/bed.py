"""The test bed of power cuts: pairs of small drives, one for each file system, and the servers.

Like wallab.bench.realbed, but the drives are small, so is the cluster, and what matters is what is
on the drives after the power has gone.
"""

import contextlib
import random
import signal
from pathlib import Path
from typing import Any

import msgspec

from wallab.bench import installed
from wallab.drives.simulated import SimulatedDrive
from wallab.machine import mounts
from wallab.machine.confinement import Confinement
from wallab.machine.ledger import Ledger
from wallab.powercut.shapes import TABLES
from wallab.servers.cluster import Cluster

SIZE = 512 << 20
"""Bytes of each drive."""

SEGMENT = 1 << 20
"""Bytes of a WAL segment: small, so that a short load crosses the end of one."""

SETTINGS = {
    "wal_buffers": "128kB",  # small, so that a short load goes around their end
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "wal_keep_size": "64MB",  # pg_waldump reads all that the load wrote
    "checkpoint_timeout": "1h",  # a cut asks for its checkpoint
    "checkpoint_completion_target": "0",
    "shared_buffers": "16MB",
    "max_connections": "30",
    "max_prepared_transactions": "30",
    "autovacuum": "off",
    # A transaction left prepared keeps its locks: the lab must not wait for them for ever.
    "lock_timeout": "60s",
    "statement_timeout": "300s",
    "restart_after_crash": "off",  # the lab starts the server when the power is back
}


class Template(msgspec.Struct, frozen=True):
    """The cluster that every cut starts from."""

    redo: str
    """LSN of its last checkpoint."""


class DrivePair:
    """The WAL drive and the data drive with one kind of file system, and a cluster on them."""

    def __init__(
        self,
        filesystem: str,
        profiles: dict[str, str],
        ledger: Ledger,
        confinement: Confinement,
    ) -> None:
        self.drives: dict[str, SimulatedDrive] = {}
        self._undo = contextlib.ExitStack()
        try:
            for name in ("wal", "data"):
                self.drives[name] = SimulatedDrive(
                    f"{name}-{filesystem}", profiles[name], SIZE, filesystem, ledger
                )
                self._undo.callback(self.drives[name].close)
        except BaseException:
            self.close()
            raise
        self.cluster = Cluster(
            self.drives["data"].mount_point / "data",
            self.drives["wal"].mount_point / "pg_wal",
            ledger,
            confinement,
        )
        self.template: Template | None = None

    @property
    def wal(self) -> SimulatedDrive:
        """The drive that the WAL is on."""
        return self.drives["wal"]

    @property
    def data(self) -> SimulatedDrive:
        """The drive that everything else is on."""
        return self.drives["data"]

    def close(self) -> None:
        """Undo everything; safe to call twice."""
        self._undo.close()

    def make_template(self, server: Path) -> Template:
        """Make the cluster with the drives' timing off, and keep the drives' content."""
        cluster = self.cluster
        for drive in self.drives.values():
            drive.mount()
        cluster.create(server, f"--wal-segsize={SEGMENT >> 20}", "--data-checksums")
        cluster.start(server, SETTINGS | {"fsync": "off"})
        with cluster.connect() as connection:
            connection.execute("CREATE EXTENSION amcheck")
            connection.execute(TABLES)
            # Segments that have been used before hold old records behind their new ones.
            for _ in range(4):
                connection.execute("SELECT pg_logical_emit_message(false, 'wallab', 'segment')")
                connection.execute("SELECT pg_switch_wal()")
            connection.execute("VACUUM FREEZE")
            connection.execute("CHECKPOINT")
        cluster.stop()
        cluster.start(server, SETTINGS | {"wal_keep_size": "0"})
        redo = ask(cluster, "SELECT redo_lsn::text FROM pg_control_checkpoint()")
        cluster.stop()
        for drive in self.drives.values():
            drive.unmount()
            drive.snapshot()
        self.template = Template(redo)
        return self.template


def ask(cluster: Cluster, query: str) -> Any:
    """Return the one value that the query gives."""
    with cluster.connect() as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]


class CutBed:
    """Everything that a worker cuts with; `open` makes it, `close` takes it away."""

    def __init__(
        self,
        trees: dict[str, Path],
        filesystems: list[str],
        profiles: dict[str, str],
        confinement: Confinement,
    ) -> None:
        """`trees` are the variants' installed servers; `profiles` those of the drives."""
        self._confinement = confinement
        self._trees = trees
        self._filesystems = filesystems
        self._profiles = profiles
        self._undo = contextlib.ExitStack()
        self.servers: dict[str, Path] = {}
        self.methods: dict[str, tuple[str, ...]] = {}
        self.pairs: dict[str, DrivePair] = {}

    def open(self) -> None:
        """Make the drives and show the servers; the clusters are made when they are needed."""
        try:
            mounts.enter_private_namespace()
            self.ledger = Ledger.open()
            self._undo.callback(self.ledger.close)
            for filesystem in self._filesystems:
                pair = DrivePair(filesystem, self._profiles, self.ledger, self._confinement)
                self.pairs[filesystem] = pair
                self._undo.callback(pair.close)
            # As in wallab.bench.realbed: file systems are mounted where the drives do not live.
            mounts.enter_private_namespace()
            trees = installed.shown(
                self._trees, self.ledger, self._undo, self._confinement, private=True
            )
            self.servers, self.methods = dict(trees.paths), dict(trees.methods)
            for pair in self.pairs.values():
                self._undo.callback(pair.cluster.stop, signal.SIGQUIT)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Undo everything that open did; safe to call twice."""
        self._undo.close()

    def pair(self, filesystem: str) -> DrivePair:
        """Return the drives with that file system, with a cluster on them."""
        pair = self.pairs[filesystem]
        if pair.template is None:
            pair.make_template(next(iter(self.servers.values())))
        return pair


def chance_of(seed: int, *words: object) -> random.Random:
    """Return a source of chance that depends on the seed and the words alone."""
    return random.Random(f"{seed} {words}")  # noqa: S311 - reproducible, not secret
