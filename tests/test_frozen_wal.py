"""pg_wal on a file system that does not answer: a reload and a new session do not wait for it."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wallab.machine import mounts, process
from wallab.machine.confinement import Confinement
from wallab.machine.ledger import Ledger
from wallab.machine.loop import LoopDevice
from wallab.servers.builder import Server
from wallab.servers.cluster import Cluster

pytestmark = pytest.mark.stack

PATIENCE = 60.0
"""Seconds for a reload; a session that cannot be had in 10 is an error of its own."""


@contextmanager
def file_system(folder: Path) -> Iterator[Path]:
    """An ext4 on a loop device, mounted; thawed at the end, if it was frozen."""
    image = folder / "image"
    image.touch()
    os.truncate(image, 128 << 20)
    point = folder / "frozen"
    point.mkdir()
    loop = LoopDevice(image)
    try:
        subprocess.run(["mkfs.ext4", "-q", loop.path], check=True)
        mounts.mount(loop.path, point, "ext4")
    finally:
        # It goes with the last mount, of which somebody else's namespace may have a copy.
        loop.let_go()
    try:
        yield point
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", point], capture_output=True)
        mounts.unmount(point)


@contextmanager
def cluster_on(server: Path, owned: Ledger, wal: Path) -> Iterator[Cluster]:
    """A cluster that has its pg_wal in the folder, and no reason to write there by itself."""
    home = owned.folder / "home"
    home.mkdir()
    process.own(home)
    cluster = Cluster(home / "data", wal / "pg_wal", owned, Confinement())
    cluster.create(server, "--wal-segsize=1")
    cluster.start(server, {"autovacuum": "off", "checkpoint_timeout": "1h"})
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    ("variant", "method"), [("direct-io", "fsync_direct"), ("committed", "open_datasync")]
)
def test_reload_to_a_direct_method(servers: dict[str, Server], variant: str, method: str) -> None:
    owned = Ledger.open("test-frozen")
    server = owned.folder / "server"
    server.mkdir()
    mounts.bind(servers[variant].path, server)
    try:
        with (
            file_system(owned.folder) as point,
            cluster_on(server, owned, writable(point)) as cluster,
        ):
            with cluster.connect() as connection:
                connection.execute("CHECKPOINT")
                connection.execute(f"ALTER SYSTEM SET wal_sync_method = {method}")
            subprocess.run(["fsfreeze", "--freeze", point], check=True)
            try:
                os.kill(cluster.postmaster(), signal.SIGHUP)
                assert reloaded(cluster, method)
            finally:
                subprocess.run(["fsfreeze", "--unfreeze", point], check=True)
    finally:
        mounts.unmount(server)
        owned.close()


def writable(point: Path) -> Path:
    """A folder of the server's user in the file system."""
    folder = point / "server"
    folder.mkdir()
    process.own(folder)
    return folder


def reloaded(cluster: Cluster, method: str) -> bool:
    """Whether new sessions come to have the method, and can see that the file is in order."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with cluster.connect() as connection:
            wrong = connection.execute(
                "SELECT error FROM pg_file_settings WHERE NOT applied AND error IS NOT NULL"
            ).fetchall()
            assert wrong == []
            row = connection.execute("SHOW wal_sync_method").fetchone()
        if row == (method,):
            return True
        time.sleep(0.05)
    return False
