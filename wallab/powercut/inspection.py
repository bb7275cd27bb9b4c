"""What a recovered server has, and whether its files are whole."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg

from wallab.powercut.bed import Template
from wallab.powercut.oracle import Entry, Recovered
from wallab.powercut.shapes import prepared_name
from wallab.servers.cluster import Cluster

PATIENCE = 300.0
"""Seconds that a tool may take; it takes less than one."""


class Damage(Exception):
    """The server or one of its tools finds its files damaged; the message has its words."""


def read(cluster: Cluster) -> Recovered:
    """Read what the clients wrote; Damage if the server cannot."""
    try:
        with cluster.connect() as connection:
            entries = connection.execute("SELECT * FROM entry ORDER BY 1, 2, 3").fetchall()
            counters = connection.execute("SELECT client, sequence FROM counter").fetchall()
            connection.execute("SELECT count(*), sum(value), max(filler) FROM scattered")
            prepared = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
    except psycopg.Error as error:
        raise Damage(f"reading the tables: {error}") from None
    return Recovered(
        entries=tuple(Entry(*row) for row in entries),
        counters=dict(counters),
        prepared=frozenset(prepared_name(gid) for (gid,) in prepared),
    )


def check_running(server: Path, cluster: Cluster) -> None:
    """Run pg_amcheck over the heap and the indexes of the database; Damage if it finds any."""
    _run(
        server,
        cluster,
        "pg_amcheck",
        "--host",
        cluster.socket,
        "--username=postgres",
        "--database=postgres",
        "--heapallindexed",
        "--jobs=2",
    )


def end_of_wal(cluster: Cluster, template: Template) -> list[str]:
    """Return pg_waldump's arguments for all WAL since the template.

    The segments are named, because pg_waldump would else take the segments' size from any file
    it finds, also from one that was made ahead and holds only zeros.
    """
    query = """SELECT pg_walfile_name(%(redo)s::pg_lsn + 1), pg_walfile_name(now), now::text
        FROM pg_current_wal_flush_lsn() AS now"""
    with cluster.connect() as connection:
        row = connection.execute(query, {"redo": template.redo}).fetchone()
    assert row is not None
    first, last, end = row
    return [f"--start={template.redo}", f"--end={end}", first, last]


def check_stopped(server: Path, cluster: Cluster, wal: list[str]) -> None:
    """Run pg_checksums, and pg_waldump with these arguments, if any; Damage if one complains."""
    _run(server, cluster, "pg_checksums", "--check", "-D", cluster.data)
    if wal:
        _run(server, cluster, "pg_waldump", "--quiet", "-p", cluster.wal, *wal)


def _run(server: Path, cluster: Cluster, name: str, *arguments: str | Path) -> None:
    with cluster.confinement.started(
        [server / "bin" / name, *arguments],
        cluster.places(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as child:
        try:
            words, _ = child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Damage(f"{name}: not done within {PATIENCE:.0f} s") from None
    if child.returncode:
        raise Damage(f"{name}: {'; '.join(_telling(words.decode(errors='replace')))}")


def _telling(output: str) -> Iterator[str]:
    """The first lines of a tool's output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    yield from lines[:4] or ["it failed without a word"]
