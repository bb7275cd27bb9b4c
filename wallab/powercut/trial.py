"""A trial of one cell: load, the power goes, recovery, inspection, verdict."""

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg

from wallab.bench.phases import Phases
from wallab.errors import MachineError
from wallab.files.timestamp import utc
from wallab.powercut import faultinjection, inspection, load
from wallab.powercut.bed import SEGMENT, CutBed, DrivePair, chance_of
from wallab.powercut.controls import CONTROLS, PositiveControl
from wallab.powercut.cutcell import CutCell
from wallab.powercut.cutrecord import CutRecord, Moment
from wallab.powercut.load import Load, LoadFailed, ServerBroke
from wallab.powercut.oracle import Judgement, judge, promised
from wallab.powercut.window import Window
from wallab.record.axes.sync import FSYNC_OFF
from wallab.servers.cluster import ServerFailed

WINDOW = (0.05, 0.7)
"""Seconds of load within which the power goes."""

TORN_BYTES = 512 << 10
"""Bytes in the data drive's cache at which a cut that is to tear pages comes."""

HONEST = PositiveControl(about="")

NEVER = 1 << 63


class Trial:
    """The state of one cut under transactions alone."""

    def __init__(
        self,
        bed: CutBed,
        cell: CutCell,
        number: int,
        fault: str,
        trace: Path | None,
        settings: dict[str, str],
        seed: int,
    ) -> None:
        self.cell = cell
        self.number = number
        self.fault = fault
        self.trace = trace
        self.control = CONTROLS.get(cell.control, HONEST)
        self.bed = bed
        self.pair: DrivePair = bed.pair(cell.filesystem)
        self.server = bed.servers[cell.variant]
        self.phases = Phases()
        self.chance_of: Callable[[str], random.Random] = lambda word: chance_of(
            seed, cell.name, number, word
        )
        self.moment = self._choose_moment()
        self.settings = settings | self._syncing() | self.control.settings
        self.lost_kb = 0.0
        self.window: Window | None = None
        self.load = self._make_load()
        self.promised_until = NEVER
        """CLOCK_MONOTONIC, ns: what was promised before must be kept."""

    def _syncing(self) -> dict[str, str]:
        """Return the settings by which the server syncs."""
        sync = self.cell.sync
        return {"fsync": "off"} if sync == FSYNC_OFF else {"wal_sync_method": sync}

    def _make_load(self) -> Load:
        return Load(self.pair.cluster, self.chance_of)

    def _choose_moment(self) -> Moment:
        chance = self.chance_of("moment")
        after = round(chance.uniform(*WINDOW), 4)
        keep = chance.choice((0.0, round(chance.random(), 3)))
        controlled = bool(self.cell.control) and not self.control.torn
        return Moment(
            after_s=after,
            # A control is to lose all that nobody flushed.
            keep=0.0 if controlled else 0.5 if self.control.torn else keep,
            wal_paused=controlled or chance.random() < 0.5,
            data_paused=self.control.torn or chance.random() < 0.5,
            checkpoint_s=(
                round(chance.uniform(0, after), 4)
                if chance.random() < 0.4 and not self.cell.control
                else None
            ),
            to_segment_end=chance.randrange(8 << 10, 128 << 10),
        )

    def run(self) -> CutRecord:
        """Do it all, and leave the bed ready for the next cut."""
        started = utc()
        outcome: dict[str, Any]
        try:
            outcome = self._verdict()
        except LoadFailed as error:
            outcome = {"category": "failed", "account": str(error)}
        except ServerBroke as error:
            outcome = {"category": "corrupted", "account": str(error), "promised": self._kept()}
        finally:
            with self.phases.phase("clear"):
                self._clear()
        return CutRecord(
            cell=self.cell,
            number=self.number,
            started=started,
            fault=self.fault,
            moment=self.moment,
            window=self.window,
            lost_kb=self.lost_kb,
            phases=self.phases.seconds,
            trace=self.trace.name if self.trace else "",
            **outcome,
        )

    def _clear(self) -> None:
        """The content is thrown away: nothing needs to be saved."""
        self._make_well()
        self.pair.cluster.stop(signal.SIGQUIT)
        self.load.join()
        for drive in self.pair.drives.values():
            drive.unmount()
        if self.trace:
            self.pair.wal.control.ask("trace off")

    # --- from load to cut -----------------------------------------------------------------

    def _verdict(self) -> dict[str, Any]:
        phase = self.phases.phase
        with phase("restore"):
            self._restore()
        with phase("start"):
            try:
                self._start()
            except ServerFailed as error:
                # Before anything was cut: the cell cannot be, for instance without O_DIRECT.
                raise LoadFailed(str(error)) from None
            self._prepare()
        with phase("load"):
            self._run_load()
        with phase("cut"):
            faultinjection.FAULTS[self.fault](self)
            self._take_down()
        try:
            with phase("recover"):
                self._recover()
            with phase("inspect"):
                judgement = self._inspect()
        except ServerFailed as error:
            return {"category": "would not start", "account": str(error), "promised": self._kept()}
        except inspection.Damage as error:
            return {"category": "corrupted", "account": str(error), "promised": self._kept()}
        return {
            "category": judgement.category,
            "promised": judgement.promised,
            "lost": judgement.lost,
            "oldest_ms": judgement.oldest_ms,
            "account": self._account(judgement),
            "details": judgement.broken[:20],
        }

    def _kept(self) -> int:
        """How many transactions had been promised."""
        return promised(self.load.log.before(self.promised_until), load.ASYNCHRONOUS)

    def _restore(self) -> None:
        pair = self.pair
        for drive in pair.drives.values():
            drive.restore()
        pair.wal.mount_options = self.control.mount_options
        pair.wal.mount()
        pair.data.mount()
        pair.wal.set_write_cache(self.control.write_cache if self.cell.control else self._cache())
        pair.data.set_write_cache("on")
        if self.trace:
            pair.wal.control.ask(f"trace {self.trace}")

    def _cache(self) -> Any:
        return self.cell.write_cache

    def _start(self) -> None:
        self.pair.cluster.start(self.server, self.settings)

    def _prepare(self) -> None:
        """Bring the WAL to a little before a segment's end, so that the load goes across it."""
        with self.pair.cluster.connect() as connection:
            row = connection.execute(
                "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
            ).fetchone()
            assert row is not None
            left = -int(row[0]) % SEGMENT
            size = left - self.moment.to_segment_end
            if size < 0:
                size += SEGMENT
            connection.execute(
                "SELECT pg_logical_emit_message(true, 'wallab', repeat('x', %s))", (size,)
            )

    def _run_load(self) -> None:
        pair = self.pair
        if self.moment.wal_paused:
            pair.wal.control.ask("destage pause")
        if self.moment.data_paused:
            pair.data.control.ask("destage pause")
        if self.control.flush_lies:
            pair.wal.control.ask("flush-lies on")
        for drive in pair.drives.values():
            drive.timing(True)
        self._write()

    def _write(self) -> None:
        """Have the clients write until the moment has come."""
        self.load.start()
        self.load.wait_for_promises()
        begun = time.monotonic()
        if self.control.torn:
            self._wait_for_dirty_pages()
            return
        if self.moment.checkpoint_s is not None:
            time.sleep(self.moment.checkpoint_s)
            self._in_background("CHECKPOINT")
        time.sleep(max(0.0, begun + self.moment.after_s - time.monotonic()))

    def _wait_for_dirty_pages(self) -> None:
        """Have a checkpoint write every page of a table; return while they are in the cache."""
        self._in_background("UPDATE scattered SET value = value + 1", "CHECKPOINT")
        deadline = time.monotonic() + load.PATIENCE
        while self.pair.data.control.ask("state")["dirty_bytes"] < TORN_BYTES:
            if time.monotonic() > deadline:
                raise LoadFailed("the checkpoint wrote too little to be torn")

    def _in_background(self, *statements: str) -> None:
        """Have the server do something, without waiting; the cut ends it."""

        def work() -> None:
            with contextlib.suppress(psycopg.Error), self.pair.cluster.connect() as connection:
                for statement in statements:
                    connection.execute(statement)

        threading.Thread(target=work, daemon=True).start()

    # --- the ways to fail, called by faultinjection.py -----------------------------------

    def power_off(self) -> None:
        """Both drives lose power; what was promised before that moment must be kept."""
        seed = self.chance_of("keep").randrange(1 << 31)
        how = f"power off keep={self.moment.keep} seed={seed}"
        for drive in (self.pair.wal, self.pair.data):
            drive.control.ask(how)
        self.load.stop()
        cuts = [drive.control.ask("cut") for drive in self.pair.drives.values()]
        self.promised_until = min(int(cut["at_ns"]) for cut in cuts)
        self.lost_kb = cuts[0]["lost_sectors"] / 2

    # --- from cut to verdict --------------------------------------------------------------

    def _take_down(self) -> None:
        """End the server and unmount; without power, nothing more is written by that."""
        self.load.stop()
        self.pair.cluster.stop(signal.SIGQUIT)
        self.load.join()
        for drive in self.pair.drives.values():
            drive.unmount()
            # What the kernel still has for the device is dropped as well.
            drive.loop.forget()
        self._make_well()

    def _make_well(self) -> None:
        """Power, no errors, no lies, and no time to take."""
        for drive in self.pair.drives.values():
            for command in ("power on", "errors off", "flush-lies off", "destage resume"):
                drive.control.ask(command)
            drive.timing(False)

    def _recover(self) -> None:
        """Mount, which replays the file systems' journals, and start the server."""
        self.pair.wal.mount_options = ()
        if self.fault in {"power-twice", "kill-recovery"}:
            self._disturb_recovery()
        for name, drive in self.pair.drives.items():
            try:
                drive.mount()
            except MachineError as error:
                raise ServerFailed(f"the {name} drive's file system: {error}") from None
        self.pair.cluster.start(self.server, self.settings | {"fsync": "on"})

    def _disturb_recovery(self) -> None:
        """Recover, but not to the end: the power goes again, or the server is killed."""
        chance = self.chance_of("disturbance")
        again = f"power off writes={chance.randint(1, 12)}"
        victim = chance.choice(list(self.pair.drives.values()))
        early = chance.random() < 0.3
        for drive in self.pair.drives.values():
            drive.timing(True)
        if self.fault == "power-twice" and early:
            victim.control.ask(again)
        killer = threading.Thread(
            target=self._kill_soon, args=(chance.uniform(0, 0.5),), daemon=True
        )
        with contextlib.suppress(ServerFailed, MachineError):
            for drive in self.pair.drives.values():
                drive.mount()
            if self.fault == "power-twice" and not early:
                victim.control.ask(again)
            if self.fault == "kill-recovery":
                killer.start()
            self.pair.cluster.start(self.server, self.settings | {"fsync": "on"})
        if killer.ident is not None:
            killer.join()
        else:
            for drive in self.pair.drives.values():
                drive.control.ask("power off")
        self._take_down()

    def _kill_soon(self, after: float) -> None:
        """Kill the postmaster, and wait until its processes have gone."""
        deadline = time.monotonic() + load.PATIENCE
        while not self.pair.cluster.alive() and time.monotonic() < deadline:
            time.sleep(0.001)
        with contextlib.suppress(psutil.Error):
            postmaster = psutil.Process(self.pair.cluster.postmaster())
            time.sleep(after)
            children = postmaster.children()
            postmaster.kill()
            faultinjection.wait_for_end(self, children)

    def _inspect(self) -> Judgement:
        cluster = self.pair.cluster
        recovered = inspection.read(cluster)
        judgement = judge(self.load.log, self.promised_until, recovered, load.ASYNCHRONOUS)
        inspection.check_running(self.server, cluster)
        wal = self._end_of_wal()
        cluster.stop()
        inspection.check_stopped(self.server, cluster, wal)
        return judgement

    def _end_of_wal(self) -> list[str]:
        """Return pg_waldump's arguments for all WAL; none if it is not to look at any."""
        assert self.pair.template is not None
        return inspection.end_of_wal(self.pair.cluster, self.pair.template)

    def _account(self, judgement: Judgement) -> str:
        """Say shortly what was lost and where it was."""
        if judgement.broken:
            return judgement.broken[0]
        if not judgement.first_lost:
            return ""
        first = judgement.first_lost
        where = (
            f"the WAL drive's cache lost {self.lost_kb:.0f} kB that it had acknowledged"
            if self.lost_kb
            else "the WAL drive lost nothing that it had acknowledged: the server had not "
            "written it, or not waited for it"
        )
        return (
            f"{judgement.lost} of {judgement.promised} transactions, the oldest {first.stage} "
            f"{judgement.oldest_ms:.0f} ms before the cut; {where}"
        )
