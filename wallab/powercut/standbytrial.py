"""A trial of a standby, whose WAL receiver has its file open while a reload changes the method.

The primary, off the drives, acknowledges what the standby reports as flushed. The power of the
standby's drives fails; it recovers, is promoted, and must have all of that.
"""

import contextlib
import time

import msgspec
import psycopg

from wallab.machine import process
from wallab.powercut import method
from wallab.powercut.bed import SEGMENT, ask
from wallab.powercut.cutrecord import Moment
from wallab.powercut.load import PATIENCE, Load, LoadFailed
from wallab.powercut.reloadtrial import server_answers
from wallab.powercut.standby import SIGNAL, Primary
from wallab.powercut.trial import Trial
from wallab.powercut.window import Window
from wallab.servers.cluster import ServerFailed


class StandbyTrial(Trial):
    """The state of one cut of a standby."""

    def _syncing(self) -> dict[str, str]:
        return {}  # in a file: what the command line says is changed by no reload

    def _make_load(self) -> Load:
        self._primary = Primary(self.pair, self.bed.ledger)
        return Load(self._primary.cluster, self.chance_of)

    def _choose_moment(self) -> Moment:
        moment = super()._choose_moment()
        return msgspec.structs.replace(moment, checkpoint_s=None, to_segment_end=SEGMENT)

    def _restore(self) -> None:
        super()._restore()
        self._primary.restore()
        process.must_run(["touch", "--", self.pair.cluster.data / SIGNAL], "touch")

    def _start(self) -> None:
        self._primary.start(self.server, self.settings)
        self._primary.show()
        super()._start()

    def _prepare(self) -> None:
        with server_answers():
            # While nothing is received: the reload in question is to be the only one.
            method.change(self.pair.cluster, self.cell.sync)
            self._primary.lead()
            with self._primary.cluster.connect() as connection:
                connection.execute("SELECT pg_logical_emit_message(false, 'wallab', 'segment')")
                connection.execute("SELECT pg_switch_wal()")

    def _write(self) -> None:
        self.load.start()
        self.load.wait_for_promises()
        with server_answers():
            method.change(self.pair.cluster, self.cell.to)
            begin = self._of_wal_receiver("written_lsn")
            time.sleep(self.moment.after_s)
            end = self._of_wal_receiver("flushed_lsn")
        end_of_file = begin + -begin % SEGMENT
        in_file = max(0, min(end, end_of_file) - begin)
        self.window = Window("receiver", round(in_file / 1024, 1))
        if not self.window.hit:
            raise LoadFailed("the window was missed: the reload came at the end of a segment")

    def _of_wal_receiver(self, position: str) -> int:
        """Return up to where it has written WAL, or reported it as flushed, in bytes."""
        query = f"SELECT max({position} - '0/0') FROM pg_stat_wal_receiver"  # noqa: S608
        if (bytes_ := ask(self.pair.cluster, query)) is None:
            raise LoadFailed("the standby does not follow its primary any more")
        return int(bytes_)

    def _take_down(self) -> None:
        self._primary.stop()
        super()._take_down()

    def _clear(self) -> None:
        self._primary.clear()
        super()._clear()

    def _recover(self) -> None:
        super()._recover()
        self._ask_until_true("SELECT pg_promote(wait => false)")
        self._ask_until_true("SELECT NOT pg_is_in_recovery()")

    def _ask_until_true(self, query: str) -> None:
        """Ask again while the answer is no, or the replay cancels the question."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.errors.SerializationFailure):
                if ask(self.pair.cluster, query):
                    return
            time.sleep(0.01)
        raise ServerFailed(f"the standby was not promoted within {PATIENCE:.0f} s")

    def _end_of_wal(self) -> list[str]:
        # It goes on in another timeline, across which pg_waldump does not read.
        return []
