"""A trial in which a reload changes wal_sync_method while a long statement writes WAL.

The statement writes WAL out of the small WAL buffers, as it must to go on, and syncs nothing, which
is for the commit that it does not come to. Others, which have the other one of the two methods,
commit, and are told so: the reload reaches a session only between its statements. Then the power
fails. If it is the new method that syncs each write, the statement begins before the reload and the
others after it; if it is the old one, the other way round.
"""

import contextlib
import time
from collections.abc import Iterator

import msgspec
import psycopg

from wallab.powercut import gate, method
from wallab.powercut.bed import SEGMENT, ask
from wallab.powercut.cutrecord import CutRecord, Moment
from wallab.powercut.gate import Gate
from wallab.powercut.load import CLIENTS, LateLoad, Load, LoadFailed, wait_until
from wallab.powercut.trial import Trial
from wallab.powercut.window import Window, opens, writer
from wallab.record.openflags import is_direct

WAL_WRITER = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}
"""It would sync in good time what the statement wrote, and hide what commits do."""

PAGES = (50, 90)
"""Of 8 kB, that the statement writes: more than the WAL buffers have, less than a segment."""

STATEMENT_GATE = 1
COMMIT_GATE = 2


class ReloadTrial(Trial):
    """The state of one cut after a reload."""

    def run(self) -> CutRecord:
        with contextlib.ExitStack() as self._gates:
            return super().run()

    def _syncing(self) -> dict[str, str]:
        # The method is in a file: what the command line says is changed by no reload.
        return dict(WAL_WRITER)

    def _make_load(self) -> Load:
        if writer(self.cell.sync, self.cell.to) == "old":
            return super()._make_load()
        return LateLoad(self.pair.cluster, self.chance_of, COMMIT_GATE)

    def _choose_moment(self) -> Moment:
        moment = super()._choose_moment()
        return msgspec.structs.replace(moment, checkpoint_s=None, to_segment_end=SEGMENT)

    def _prepare(self) -> None:
        with server_answers():
            method.change(self.pair.cluster, self.cell.sync)
            self._have_wal_writer_flush()

    def _have_wal_writer_flush(self) -> None:
        """Have the WAL writer flush now, so that it does not again within its delay."""
        with self.pair.cluster.connect() as connection:
            connection.execute("SET synchronous_commit = off")
            connection.execute("SELECT pg_logical_emit_message(true, 'wallab', 'asynchronous')")
            connection.execute("SELECT pg_reload_conf()")  # which wakes it
        behind = "SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()"
        wait_until(lambda: not ask(self.pair.cluster, behind), "the WAL writer does not flush")

    def _write(self) -> None:
        with server_answers():
            if writer(self.cell.sync, self.cell.to) == "old":
                begin = self._begin_statement()
                method.change(self.pair.cluster, self.cell.to)
                before = self._look(begin)
                self.load.start()
            else:
                commits = self._close_gate(COMMIT_GATE)
                self.load.start()
                commits.wait_for(CLIENTS)
                method.change(self.pair.cluster, self.cell.to)
                begin = self._begin_statement()
                before = self._look(begin)
                commits.open()
            self.load.wait_for_a_commit()
            self.window = msgspec.structs.replace(
                before, acknowledged_kb=self._unsynced_kb(before.written_kb)
            )
        self.load.wait_for_promises()
        time.sleep(self.moment.after_s)

    def _close_gate(self, number: int) -> Gate:
        return self._gates.enter_context(gate.closed(self.pair.cluster, number))

    def _begin_statement(self) -> int:
        """Have the statement write in a segment that no other process has open.

        One that has syncs it when it reloads. Returns the position at which its WAL begins.
        """
        with self.pair.cluster.connect() as connection:
            connection.execute("SELECT pg_switch_wal()")
        self.pair.wal.reset()
        begin = int(ask(self.pair.cluster, "SELECT pg_current_wal_insert_lsn() - '0/0'"))
        pages = self.chance_of("statement").randint(*PAGES)
        statement = f"""DO $$
            BEGIN
                PERFORM pg_logical_emit_message(true, 'wallab', repeat('x', 8000))
                    FROM generate_series(1, {pages});
                PERFORM pg_advisory_xact_lock_shared({STATEMENT_GATE});
            END $$"""
        waits = self._close_gate(STATEMENT_GATE)
        self._in_background(statement)
        waits.wait_for(1)
        return begin

    def _look(self, begin: int) -> Window:
        """Look at what has been written since that position, and whether the drive has it."""
        position = "SELECT pg_current_wal_lsn() - '0/0'"
        written_kb = (int(ask(self.pair.cluster, position)) - begin) / 1024
        unsynced_kb = self._unsynced_kb(written_kb)
        if opens(self.cell.sync, self.cell.to) and not unsynced_kb:
            raise LoadFailed("the window was missed: what the long statement wrote is synced")
        whose = writer(self.cell.sync, self.cell.to)
        return Window(whose, round(written_kb, 1), unsynced_kb)

    def _unsynced_kb(self, written_kb: float) -> float:
        """Return how much of that is on no media for certain, in kB.

        The drive was sent at least so much less since it was reset, however often it was sent
        what; what it was sent and only its volatile cache has tells of direct writes.
        """
        drive = self.pair.wal
        unsynced = max(0.0, written_kb - drive.reading().counters["sectors_written"] / 2)
        old, new = self.cell.sync, self.cell.to
        volatile = self.cell.write_cache in {"on", "on-unflushed"}
        if volatile and is_direct(old if writer(old, new) == "old" else new):
            unsynced += drive.control.ask("state")["dirty_bytes"] / 1024
        return round(unsynced, 1)


@contextlib.contextmanager
def server_answers() -> Iterator[None]:
    """LoadFailed where the server does not do what a cut is prepared with."""
    try:
        yield
    except psycopg.Error as error:
        raise LoadFailed(f"before anything was cut: {str(error).strip()}") from None
