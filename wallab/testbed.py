"""The test bed of a run: drives, servers and the cluster that every sample starts from.

`open` makes it ready, `sample` measures a cell on a fresh copy of the cluster, `close` takes all
of it away again.
"""

import contextlib
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wallab import cluster as clusters
from wallab import mounts, process
from wallab.cluster import Cluster, ServerFailed
from wallab.drive import Drive
from wallab.ledger import Ledger
from wallab.matrix import FSYNC_OFF, Cell, Experiment, Preset, write_cache_of
from wallab.samples import CpuSeconds, Sample
from wallab.simulated import SimulatedDrive
from wallab.walactivity import open_flags, read_counters, wait_until_alone
from wallab.workload import Measured, Pgbench, RunFailed


def utc() -> str:
    """The time now, as it is written in records."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Phases:
    """How long the phases of a sample take, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase, also one that fails; a second one of that name adds to the first."""
        begun = time.monotonic()
        try:
            yield
        finally:
            spent = time.monotonic() - begun
            self.seconds[name] = round(self.seconds.get(name, 0.0) + spent, 3)


class TestBed:
    """Two simulated drives with a cluster on them, and the servers that can run it."""

    def __init__(self, experiment: Experiment, preset: Preset, servers: dict[str, Path]) -> None:
        """`servers` are the installed trees of the variants."""
        self._experiment = experiment
        self._preset = preset
        self._installed = servers
        self._undo = contextlib.ExitStack()
        self._servers: dict[str, Path] = {}
        self.drives: dict[str, Drive] = {}
        self.methods: dict[str, tuple[str, ...]] = {}

    def open(self) -> dict[str, Any]:
        """Make everything ready; return what was found out about the template cluster."""
        try:
            mounts.enter_private_namespace()
            self._ledger = Ledger.open()
            self._undo.callback(self._ledger.close)
            for name, drive in self._experiment.drive.items():
                self.drives[name] = SimulatedDrive(
                    name, drive.profile, drive.size_mb << 20, drive.filesystem, self._ledger
                )
                self._undo.callback(self.drives[name].close)
            # File systems are mounted where the drives' servers do not live: the last process of
            # a namespace unmounts what is left there, and a server would then wait for itself.
            mounts.enter_private_namespace()
            for variant, path in self._installed.items():
                target = self._ledger.folder / "server" / variant
                target.mkdir(parents=True)
                mounts.bind(path, target)
                self._undo.callback(mounts.unmount, target)
                self._servers[variant] = target
                self.methods[variant] = clusters.methods(target)
            self._cluster = Cluster(
                self.drives["data"].mount_point / "data",
                self.drives["wal"].mount_point / "pg_wal",
                self._ledger,
            )
            self._undo.callback(self._cluster.stop, signal.SIGQUIT)
            return self._make_template()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Undo everything that open did; safe to call twice."""
        self._undo.close()

    def _settings(self, cell: Cell | None) -> dict[str, str]:
        settings = self._experiment.settings | {
            "max_connections": str(self._preset.clients + 20),
        }
        if cell is None:
            return settings | {"fsync": "off"}
        if cell["sync"] == FSYNC_OFF:
            return settings | {"fsync": "off"}
        return settings | {"wal_sync_method": cell["sync"]}

    def _make_template(self) -> dict[str, Any]:
        """Load the cluster with the drives' timing off, and keep it."""
        begun = time.monotonic()
        variant, server = next(iter(self._servers.items()))
        cluster = self._cluster
        for drive in self.drives.values():
            drive.mount()
        cluster.create(server)
        cluster.start(server, self._settings(None) | {"max_wal_size": "4GB"})
        Pgbench(server, cluster.socket).load(self._preset.scale)
        cluster.stop()
        # Once more with the run's own settings, so that the segments kept for reuse are those
        # that such a server keeps, and none is created while a sample is measured.
        cluster.start(server, self._settings(None))
        with cluster.connect() as connection:
            for _ in range(10):
                connection.execute("SELECT pg_logical_emit_message(false, 'wallab', 'segment')")
                connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
        cluster.stop()
        found = {
            "made_by": variant,
            "bytes": cluster.read_into_memory(),
            "wal_segments": cluster.segments(),
            "seconds": round(time.monotonic() - begun, 1),
        }
        for drive in self.drives.values():
            drive.unmount()
            drive.snapshot()
        return found

    def applies(self, cell: Cell) -> bool:
        """Whether the cell's variant has its method; a cell that does not apply is N/A."""
        return cell["sync"] == FSYNC_OFF or cell["sync"] in self.methods[cell["variant"]]

    def sample(self, cell: Cell, round_number: int, position: int) -> Sample:
        """Measure the cell on a fresh copy of the template.

        A run that fails is a sample that says so; MachineError if the test bed itself broke.
        """
        started = utc()
        phases = Phases()
        gained: dict[str, Any] = {}
        try:
            gained = self._measure(cell, phases)
            state, error = "measured", ""
        except (RunFailed, ServerFailed) as failure:
            state, error = "failed", str(failure)
        finally:
            with phases.phase("stop"):
                self._end()
        return Sample(
            cell=cell,
            round=round_number,
            position=position,
            started=started,
            state="measured" if state == "measured" else "failed",
            error=error,
            phases=phases.seconds,
            **gained,
        )

    def _end(self) -> None:
        """End the sample: the content is thrown away, so nothing needs to be saved."""
        self._timing(False)
        self._cluster.stop(signal.SIGQUIT)
        for drive in self.drives.values():
            drive.unmount()

    def _measure(self, cell: Cell, phases: Phases) -> dict[str, Any]:
        server = self._servers[cell["variant"]]
        preset = self._preset
        with phases.phase("restore"):
            for name, drive in self.drives.items():
                drive.restore()
                drive.mount()
                drive.set_write_cache(write_cache_of(self._experiment.drive[name], cell))
        with phases.phase("start"):
            self._cluster.start(server, self._settings(cell))
        with phases.phase("read"):
            # What the thread's machine had warm after 20 runs is read with the timing off.
            self._cluster.read_into_memory()
        pgbench = Pgbench(server, self._cluster.socket)
        script = self._experiment.workload
        warm_up = None
        if preset.warm_up_seconds:
            with phases.phase("warm_up"):
                self._timing(True)
                warm_up, _ = self._run(
                    pgbench,
                    pgbench.arguments(script, preset.clients, seconds=preset.warm_up_seconds),
                )
        with self._cluster.connect() as connection:
            with phases.phase("checkpoint"):
                # So that each sample is as far from the next checkpoint, whatever its warm-up
                # wrote. In no time of the drives': no figure includes it.
                self._timing(False)
                connection.execute("CHECKPOINT")
                self._timing(True)
            with phases.phase("count"):
                for drive in self.drives.values():
                    drive.reset()
                wait_until_alone(connection)
                before = read_counters(connection)
                busy = self._cpu_seconds()
            with phases.phase("measure"):
                log = self._cluster.log.with_name("transactions")
                figures, flags = self._run(
                    pgbench,
                    pgbench.arguments(
                        script,
                        preset.clients,
                        seconds=preset.seconds,
                        transactions=preset.transactions,
                        log=log,
                    ),
                    log,
                )
            with phases.phase("count"):
                drives = {name: drive.reading() for name, drive in self.drives.items()}
                wait_until_alone(connection)
                after = read_counters(connection)
                cpu_seconds = self._cpu_seconds().since(busy)
        return {
            "figures": figures,
            "warm_up": warm_up,
            "cpu_seconds": cpu_seconds,
            "wal": after.since(before),
            "drive": drives,
            "write_cache": {name: drive.write_cache() for name, drive in self.drives.items()},
            "open_flags": flags,
        }

    def _timing(self, on: bool) -> None:
        for drive in self.drives.values():
            drive.timing(on)

    def _cpu_seconds(self) -> CpuSeconds:
        """Processor time so far: of the server, and of the children that have ended (pgbench)."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return CpuSeconds(self._cluster.cpu_seconds(), ended.ru_utime + ended.ru_stime)

    def _run(
        self, pgbench: Pgbench, arguments: list[str], log: Path | None = None
    ) -> tuple[Measured, dict[str, int]]:
        """Run pgbench; look once, in its midst, at how the server has its WAL open."""
        child = pgbench.start(*arguments)
        try:
            flags: dict[str, int] = {}
            while not flags:
                try:
                    child.wait(0.5)
                    break
                except subprocess.TimeoutExpired:
                    flags = open_flags(self._cluster.postmaster(), self._cluster.wal)
            return pgbench.finish(child, log), flags
        finally:
            process.end_group(child)
