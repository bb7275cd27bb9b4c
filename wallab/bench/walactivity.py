"""What the WAL code did: the server's own counters."""

import time
from typing import Any

import msgspec
import psycopg

from wallab.record.number import Counter


class WalCounters(msgspec.Struct, frozen=True):
    """Counters of WAL activity since the server's start; None where the major has none."""

    writes: Counter | None
    """Calls that wrote WAL to the segments."""
    write_bytes: Counter | None
    """Bytes of those calls (from 18)."""
    syncs: Counter | None
    """Calls of fsync or fdatasync."""
    bytes: Counter | None
    """WAL generated."""
    full_page_images: Counter | None

    def since(self, earlier: "WalCounters") -> "WalCounters":
        """Return what was added since the earlier reading."""
        return WalCounters(
            *(
                None if new is None or old is None else new - old
                for new, old in zip(
                    msgspec.structs.astuple(self), msgspec.structs.astuple(earlier), strict=True
                )
            )
        )


# By the first major that has them. pg_stat_io counts the zeroing of new segments apart, as init.
_QUERIES = {
    18: """
        SELECT i.writes, i.write_bytes, i.fsyncs, w.wal_bytes, w.wal_fpi
        FROM (SELECT sum(writes) AS writes, sum(write_bytes) AS write_bytes, sum(fsyncs) AS fsyncs
              FROM pg_stat_io WHERE object = 'wal' AND context = 'normal') i, pg_stat_wal w""",
    14: "SELECT wal_write, NULL, wal_sync, wal_bytes, wal_fpi FROM pg_stat_wal",
    0: "SELECT NULL, NULL, NULL, pg_current_wal_lsn() - '0/0', NULL",
}


def read_counters(connection: psycopg.Connection[tuple[Any, ...]]) -> WalCounters:
    """Read the server's counters, those of all backends that have reported."""
    major = connection.info.server_version // 10000
    query = next(text for first, text in _QUERIES.items() if major >= first)
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return WalCounters(*(None if value is None else int(value) for value in row))


def wait_until_alone(connection: psycopg.Connection[tuple[Any, ...]], patience: float = 10) -> None:
    """Wait until no other client is connected: a backend reports its counters as it ends."""
    deadline = time.monotonic() + patience
    others = """SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""
    while time.monotonic() < deadline:
        row = connection.execute(others).fetchone()
        if row is None or row[0] == 0:
            return
        time.sleep(0.01)
