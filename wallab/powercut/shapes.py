"""The shapes of transactions that the clients of a power cut write, and the tables they fill."""

import random
from collections.abc import Callable
from typing import Any

import psycopg

from wallab.powercut.acknowledgement import Acknowledgements
from wallab.powercut.oracle import GHOST, Entry, checksum

Connection = psycopg.Connection[tuple[Any, ...]]

SCATTERED_ROWS = 400
"""Rows of the table scattered."""

TABLES = """
-- One row a page with room for its next version beside it: pages that are rewritten in place.
-- It is the first table, since a checkpoint writes the oldest tables first.
CREATE TABLE scattered (id int PRIMARY KEY, value int NOT NULL, filler text) WITH (fillfactor=30);
ALTER TABLE scattered ALTER filler SET STORAGE PLAIN;
INSERT INTO scattered SELECT i, 0, repeat(md5(i::text), 60)
    FROM generate_series(1, 400) i;
CREATE TABLE entry (
    client int, sequence int, part int, parts int, shape text, body text, checksum text,
    PRIMARY KEY (client, sequence, part));
-- Large bodies are stored as they are, so that they cost as much WAL as they are long.
ALTER TABLE entry ALTER body SET STORAGE EXTERNAL;
CREATE TABLE counter (client int PRIMARY KEY, sequence int NOT NULL);
INSERT INTO counter SELECT i, 0 FROM generate_series(0, 31) i;
"""

SMALL = 120
LARGE = 44_000
"""Bytes of a body: WAL of more than five pages, in rows of TOAST."""


def entry(client: int, sequence: int, part: int, parts: int, shape: str, body: str) -> Entry:
    """Return a row that describes itself."""
    bare = Entry(client, sequence, part, parts, shape, body, "")
    return Entry(client, sequence, part, parts, shape, body, checksum(bare))


def insert(connection: Connection, row: Entry) -> None:
    """Write the row."""
    connection.execute(
        "INSERT INTO entry VALUES (%s, %s, %s, %s, %s, %s, %s)",
        (row.client, row.sequence, row.part, row.parts, row.shape, row.body, row.checksum),
    )


class Client:
    """A client: writes one transaction after the other, and notes what it is told."""

    def __init__(
        self, number: int, connection: Connection, log: Acknowledgements, chance: random.Random
    ) -> None:
        self.number = number
        self._connection = connection
        self._log = log
        self._chance = chance
        self._sequence = 0

    def transact(self, shape: str) -> None:
        """Run the next transaction; psycopg.Error when the server goes away."""
        self._sequence += 1
        self._log.begin(self.number, self._sequence)
        SHAPES[shape](self)
        self._log.note(self.number, self._sequence, "committed")

    def commit_late(self, gate: int) -> None:
        """Run a transaction that is one statement, and waits for an advisory lock in its midst.

        As such a statement is sent, without parameters, nothing comes between it and its commit.
        """
        self._sequence += 1
        self._log.begin(self.number, self._sequence)
        body = self._chance.randbytes(SMALL // 2).hex()
        row = entry(self.number, self._sequence, 0, 1, "late", body)
        self._connection.execute(
            """WITH waited AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(%s)),
            row AS (INSERT INTO entry VALUES (%s, %s, %s, %s, %s, %s, %s))
            UPDATE counter SET sequence = %s FROM waited WHERE client = %s""",
            (gate, row.client, row.sequence, row.part, row.parts, row.shape, row.body,
             row.checksum, row.sequence, row.client),
        )  # fmt: skip
        self._log.note(self.number, self._sequence, "committed")

    def _execute(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement)

    def _insert(self, shape: str, part: int, parts: int, size: int = SMALL) -> None:
        body = self._chance.randbytes(size // 2).hex()
        insert(self._connection, entry(self.number, self._sequence, part, parts, shape, body))

    def _count(self) -> None:
        """Update the client's counter, and a page somewhere, in place."""
        self._connection.execute(
            "UPDATE counter SET sequence = %s WHERE client = %s", (self._sequence, self.number)
        )
        # A page of the client's own, so that no client waits for another's transaction.
        own = range(self.number, SCATTERED_ROWS, 32)
        self._connection.execute(
            "UPDATE scattered SET value = value + 1 WHERE id = %s", (self._chance.choice(own) + 1,)
        )

    def single(self) -> None:
        """One statement, which commits by itself."""
        body = self._chance.randbytes(SMALL // 2).hex()
        row = entry(self.number, self._sequence, 0, 1, "single", body)
        self._connection.execute(
            """WITH row AS (INSERT INTO entry VALUES (%s, %s, %s, %s, %s, %s, %s))
            UPDATE counter SET sequence = %s WHERE client = %s""",
            (row.client, row.sequence, row.part, row.parts, row.shape, row.body, row.checksum,
             row.sequence, row.client),
        )  # fmt: skip

    def multi(self) -> None:
        """Several statements."""
        self._execute("BEGIN")
        for part in range(3):
            self._insert("multi", part, 3)
        self._count()
        self._execute("COMMIT")

    def savepoints(self) -> None:
        """Subtransactions: one that is rolled back, one that is kept."""
        self._execute("BEGIN")
        self._insert("savepoints", 0, 2)
        self._execute("SAVEPOINT a")
        self._insert("savepoints", GHOST, 2)
        self._execute("ROLLBACK TO a", "SAVEPOINT b")
        self._insert("savepoints", 1, 2)
        self._execute("RELEASE b")
        self._count()
        self._execute("COMMIT")

    def two_phase(self) -> None:
        """Prepared, then committed: two promises."""
        self._execute("BEGIN")
        self._insert("two-phase", 0, 2)
        self._insert("two-phase", 1, 2)
        self._count()
        name = f"{self.number}-{self._sequence}"
        self._execute(f"PREPARE TRANSACTION '{name}'")
        self._log.note(self.number, self._sequence, "prepared")
        self._execute(f"COMMIT PREPARED '{name}'")

    def large(self) -> None:
        """A row over several pages of WAL."""
        self._execute("BEGIN")
        self._insert("large", 0, 1, LARGE)
        self._count()
        self._execute("COMMIT")


SHAPES: dict[str, Callable[[Client], None]] = {
    "single": Client.single,
    "multi": Client.multi,
    "savepoints": Client.savepoints,
    "two-phase": Client.two_phase,
    "large": Client.large,
}
ASYNCHRONOUS_SHAPES = ("single", "multi", "savepoints", "large")
"""PREPARE TRANSACTION always waits for the drive, so two-phase is no shape of theirs."""


def prepared_name(name: str) -> tuple[int, int]:
    """Return client and sequence of a prepared transaction's name."""
    client, sequence = name.split("-")
    return int(client), int(sequence)
