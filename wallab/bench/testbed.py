"""The test bed of a run: drives, servers and the cluster that every sample starts from.

`open` makes it ready, `sample` measures a cell on a fresh copy of the cluster, `close` takes all
of it away again.
"""

import contextlib
import functools
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from wallab.bench import cluster as clusters
from wallab.bench import workloads
from wallab.bench.cluster import Cluster, ServerFailed
from wallab.bench.openflags import open_flags
from wallab.bench.pgbench import Measured, Pgbench, RunFailed
from wallab.bench.phases import Phases
from wallab.bench.timeline import LOOK_S, Series, Timeline
from wallab.bench.walactivity import read_counters, wait_until_alone
from wallab.bench.workloads.base import Outcome, Workload
from wallab.drives.maker import DriveMaker, Drives
from wallab.errors import LabError, MachineError
from wallab.files.timestamp import utc
from wallab.machine import mounts, process, provision
from wallab.machine.ledger import Ledger
from wallab.machine.memorygroup import MemoryGroup
from wallab.record import axes, matrix
from wallab.record.conditions import Conditions
from wallab.record.matrix import Cell, Experiment, Preset, write_cache_of
from wallab.record.samples import CpuSeconds, Sample

HANGING = 900.0
"""Seconds that pgbench may take beside ten times what it was told; busy machines need far less."""


def _plain(name: str) -> str:
    """Return the name as that of a file."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", name)


class TestBed:
    """Drives with clusters on them, and the servers that can run them.

    Axes that a drive is made by (profile, file_system) give it a set of drives for each value;
    axes that a template is made by (source, scale) give each set a template for each value.
    """

    def __init__(
        self,
        experiment: Experiment,
        preset: Preset,
        cells: tuple[Cell, ...],
        servers: dict[str, Path],
        *,
        root_device_too: bool = False,
    ) -> None:
        """`servers` are the installed trees, by `Conditions.server`.

        A device that holds the running system is refused unless named by `root_device_too`.
        """
        self._experiment = experiment
        self._preset = preset
        self._maker = DriveMaker(experiment.drive, root_device_too=root_device_too)
        self._wanted: dict[tuple[str | None, str | None], list[Conditions]] = {}
        """Profile and file system -> what the cells ask for that have drives of that kind."""
        for cell in cells:
            asked = self.conditions(cell)
            self._wanted.setdefault((asked.profile, asked.filesystem), []).append(asked)
        self._installed = servers
        self._workload = workloads.find(experiment.workload)
        self._undo = contextlib.ExitStack()
        self._servers: dict[str, Path] = {}
        self.values = experiment.values
        self.series = experiment.series
        """What is to be looked at over time."""
        self.group: MemoryGroup | None = None
        """What limits the memory of the server and of all that it starts."""
        self._timeline: Timeline | None = None
        self._sets: dict[tuple[str | None, str | None], Drives] = {}
        self.methods: dict[str, tuple[str, ...]] = {}
        self.drives: Drives = {}
        """Those of the sample in hand."""
        self.cluster: Cluster

    def open(self) -> dict[str, Any]:
        """Make everything ready; return what was found out about the template clusters."""
        try:
            self._install()
            kinds = self._maker.kinds
            private = "simulated" in kinds or not all(
                map(process.can_run, self._installed.values())
            )
            if private:
                mounts.enter_private_namespace()
            self._ledger = Ledger.open()
            self._undo.callback(self._ledger.close)
            lasting = None
            if kinds != {"simulated"}:
                lasting = Ledger.open(lasting=True)
                self._undo.callback(lasting.close)
            for key, wanted in self._wanted.items():
                if self._maker.can(wanted[0]):
                    suffix = f"-{len(self._sets) + 1}" if self._sets else ""
                    self._sets[key] = self._maker.make(
                        wanted[0], suffix, (self._ledger, lasting), self._undo
                    )
            # File systems are mounted where the drives' servers do not live: the last process of
            # a namespace unmounts what is left there, and a server would then wait for itself.
            if private:
                mounts.enter_private_namespace()
            for name, path in self._installed.items():
                target = self._ledger.folder / "server" / _plain(name) if private else path
                if private:
                    target.mkdir(parents=True)
                    mounts.bind(path, target)
                    self._undo.callback(mounts.unmount, target)
                self._servers[name] = target
                self.methods[name] = clusters.methods(target)
            if limit := matrix.memory_mb(self._experiment, self._preset):
                name = f"wal-lab-{os.getpid()}"
                self.group = MemoryGroup(name, limit << 20, self._ledger)
                self._undo.callback(self.group.close)
            if any(one.archive == "direct_cp" for one in self._every()):
                copier = self._ledger.folder / "direct_cp"
                shutil.copy2(provision.copy_program(), copier)
                copier.chmod(0o755)
            return self._make_templates()
        except BaseException:
            self.close()
            raise

    def _every(self) -> list[Conditions]:
        """Return what all cells ask for."""
        return [one for wanted in self._wanted.values() for one in wanted]

    def _install(self) -> None:
        """Install the programs that the workloads run; MachineError where that fails."""
        wanted: dict[str, str] = {}
        for conditions in self._every():
            wanted |= self._workload_of(conditions).packages
        try:
            provision.install(wanted)
        except provision.SetupError as error:
            raise MachineError(str(error)) from None

    def close(self) -> None:
        """Undo everything that open did; safe to call twice."""
        self._undo.close()

    def conditions(self, cell: Cell) -> Conditions:
        """Return what the cell asks for."""
        return matrix.conditions(self._experiment, self._preset, cell)

    def client_cpus(self, conditions: Conditions) -> int:
        """Return how many CPUs the clients have for themselves; 0: they share the server's.

        Clients and server are apart if that is possible in all cells of the run, since cells that
        share could not be compared with those that do not.
        """
        have = len(os.sched_getaffinity(0))
        asked = [conditions.cpus or 0 for conditions in self._every()]
        most = max((one for one in asked if one <= have), default=0)
        return conditions.cpus or 0 if 0 < 2 * most <= have else 0

    def server(self, conditions: Conditions) -> Path:
        """Return the installed server that the conditions name."""
        return self._servers[conditions.server]

    def lacks(self, cell: Cell) -> str:
        """Say why the cell is N/A; nothing if it can be measured."""
        conditions = self.conditions(cell)
        for axis, value in cell.items():
            if reason := axes.find(axis).lacks(value, conditions, self):
                return reason
        drives = self._sets[conditions.profile, conditions.filesystem]
        for name, drive in self._experiment.drive.items():
            if reason := drives[name].unavailable(write_cache_of(drive, cell)):
                return reason
        return ""

    def _workload_of(self, conditions: Conditions) -> Workload:
        return workloads.find(conditions.workload or self._experiment.workload)

    def _settings(self, conditions: Conditions) -> dict[str, str]:
        settings = {"max_connections": str(conditions.clients + 20)} | conditions.settings
        if conditions.archive is None:
            return settings
        program = self._ledger.folder / "direct_cp" if conditions.archive == "direct_cp" else "cp"
        command = f'{program} "%p" "{self.archive}/%f"'
        return settings | {"archive_mode": "on", "archive_command": command}

    @property
    def archive(self) -> Path:
        """Where finished WAL segments are copied to: the drive of the data."""
        return self.drives["data"].mount_point / "archive"

    def _take(self, conditions: Conditions) -> None:
        """Choose the drives and the cluster that the conditions name."""
        self.drives = self._sets[conditions.profile, conditions.filesystem]
        template = "-".join(filter(None, (conditions.source, str(conditions.scale))))
        folder = _plain(template)
        self.cluster = Cluster(
            self.drives["data"].mount_point / "data" / folder,
            self.drives.get("wal", self.drives["data"]).mount_point / "pg_wal" / folder,
            self._ledger,
        )
        self.cluster.group = self.group

    def _make_templates(self) -> dict[str, Any]:
        """Load the clusters with the drives' timing off, and keep them."""
        found: dict[str, Any] = {}
        for key, drives in self._sets.items():
            for drive in drives.values():
                drive.mount()
            made: set[Path] = set()
            for conditions in self._wanted[key]:
                self._take(conditions)
                if self.cluster.data in made:
                    continue
                made.add(self.cluster.data)
                # The last one's is kept, as the first template's where there is but one.
                found |= self._make_template(conditions)
            found["mounts"] = found.get("mounts", {}) | {
                drive.name: [mounts.kind(drive.mount_point), *mounts.options(drive.mount_point)]
                for drive in drives.values()
            }
            for drive in drives.values():
                drive.unmount()
                drive.snapshot()
        return found

    def _make_template(self, conditions: Conditions) -> dict[str, Any]:
        begun = time.monotonic()
        server = self.server(conditions)
        settings = self._settings(
            Conditions(
                scale=conditions.scale,
                clients=conditions.clients,
                settings=self._experiment.settings | {"fsync": "off"},
            )
        )
        cluster = self.cluster
        cluster.group = None
        for folder in (cluster.data.parent, cluster.wal.parent, self.archive):
            folder.mkdir(exist_ok=True)
            process.own(folder)
        self._undo.callback(cluster.stop, signal.SIGQUIT)
        cluster.create(server)
        cluster.start(server, settings | {"max_wal_size": "4GB"})
        try:
            self._workload.load(server, cluster, conditions.scale)
        except psycopg.Error as error:
            raise LabError(
                f"the data of scale {conditions.scale} cannot be loaded: {error}"
            ) from None
        cluster.stop()
        # Once more with the run's own settings, so that the segments kept for reuse are those
        # that such a server keeps, and none is created while a sample is measured.
        cluster.start(server, settings)
        with cluster.connect() as connection:
            for _ in range(10):
                connection.execute("SELECT pg_logical_emit_message(false, 'wallab', 'segment')")
                connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
        particulars = cluster.particulars()
        cluster.stop()
        return {
            "made_by": conditions.server,
            "pgbench": Pgbench(server, cluster.socket).version(),
            **particulars,
            "bytes": cluster.read_into_memory(),
            "wal_segments": cluster.segments(),
            "seconds": round(time.monotonic() - begun, 1),
        }

    def sample(self, cell: Cell, round_number: int, position: int) -> Sample:
        """Measure the cell on a fresh copy of the template.

        A run that fails is a sample that says so; MachineError if the test bed itself broke.
        """
        started = utc()
        phases = Phases()
        gained: dict[str, Any] = {}
        self._take(self.conditions(cell))
        try:
            gained = self._measure(cell, phases)
            state, error = "measured", ""
        except (RunFailed, ServerFailed, psycopg.Error) as failure:
            state, error = "failed", self._account(failure)
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

    def _account(self, failure: Exception) -> str:
        """Say why a run failed, with what the server's log says of it, which goes with the bed."""
        said, complaints = str(failure).strip(), self.cluster.complaints()
        if not complaints or complaints in said:
            return said
        return f"{said}; the server's log: {complaints}"

    def _end(self) -> None:
        """End the sample: the content is thrown away, so nothing needs to be saved."""
        try:
            self._timing(False)
        finally:
            # Also if a drive is gone, or a second Ctrl-C comes: its file system stays busy else.
            self.cluster.stop(signal.SIGQUIT)
        for drive in self.drives.values():
            drive.unmount()
        # An experiment may have many drives, and uses a few at a time.
        for drive in self.drives.values():
            drive.forget()

    def _measure(self, cell: Cell, phases: Phases) -> dict[str, Any]:
        preset = self._preset
        conditions = self.conditions(cell)
        workload = self._workload_of(conditions)
        with phases.phase("restore"):
            for name, drive in self.drives.items():
                drive.restore()
                drive.mount_options = conditions.mount_options
                drive.mount()
                drive.set_write_cache(write_cache_of(self._experiment.drive[name], cell))
                drive.set_read_ahead(conditions.read_ahead)
        with phases.phase("start"):
            self.cluster.start(self.server(conditions), self._settings(conditions), conditions.cpus)
        with phases.phase("read"):
            # What the thread's machine had warm after 20 runs is read with the timing off.
            # Where memory is limited, the server reads by itself, on its own account.
            if self.group is not None:
                workload.fill_memory(self)
            elif not workload.cold:
                self.cluster.read_into_memory()
            workload.prepare(self, preset)
        warm_up = None
        if preset.warm_up_seconds:
            with phases.phase("warm_up"):
                self._timing(True)
                warm_up = workload.warm_up(self, conditions, preset)
        with self.cluster.connect() as connection:
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
                outcome, series = self._watched(lambda: workload.measure(self, conditions, preset))
            with phases.phase("count"):
                drives = {name: drive.reading() for name, drive in self.drives.items()}
                wait_until_alone(connection)
                after = read_counters(connection)
                cpu_seconds = self._cpu_seconds().since(busy)
            if workload.checked:
                with phases.phase("check"):
                    self._timing(False)
                    workload.check(connection)
        limit = {"memory_limit_mb": self.group.limit / (1 << 20)} if self.group else {}
        told = {name: axes.find(name).read_back(conditions, self) for name in cell}
        return {
            "figures": outcome.figures,
            "warm_up": warm_up,
            "cpu_seconds": cpu_seconds,
            "wal": after.since(before),
            "drive": drives,
            "write_cache": {name: drive.write_cache() for name, drive in self.drives.items()},
            "open_flags": outcome.open_flags,
            "values": outcome.values | limit,
            "series": series | outcome.series,
            "read_back": {name: value for name, value in told.items() if value is not None},
        }

    def _watched(self, measure: Callable[[], Outcome]) -> tuple[Outcome, dict[str, Series]]:
        """Measure, and look meanwhile at what the experiment wants to see over time."""
        if not self.series:
            return measure(), {}
        self._timeline = timeline = Timeline(self, self.series)
        try:
            outcome = measure()
            timeline.look()
        finally:
            self._timeline = None
        return outcome, timeline.series()

    def _timing(self, on: bool) -> None:
        for drive in self.drives.values():
            drive.timing(on)

    def _cpu_seconds(self) -> CpuSeconds:
        """Processor time so far: of the server, and of the children that have ended (pgbench)."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return CpuSeconds(self.cluster.cpu_seconds(), ended.ru_utime + ended.ru_stime)

    def run_program(
        self, command: list[str | Path], folder: Path, group: MemoryGroup | None = None
    ) -> tuple[str, float]:
        """Run a program as the server's user, in the group; return what it printed, and seconds.

        RunFailed if it ends with an error.
        """
        begun = time.monotonic()
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = process.spawn(
                group.waiting(command) if group else command,
                as_server=True,
                cwd=folder,
                stdin=subprocess.PIPE if group else subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
            try:
                if group:
                    group.admit(child)
                for _ in self.while_running(child):
                    pass
            finally:
                process.end_group(child)
                if group:
                    group.kill()  # what it started and did not wait for
            seconds = time.monotonic() - begun
            output.seek(0)
            errors.seek(0)
            said = output.read().decode(errors="replace")
            if child.returncode:
                words = errors.read().decode(errors="replace").strip() or said.strip()
                raise RunFailed(f"{command[0]} exited with {child.returncode}: {words[-500:]}")
        return said, seconds

    @functools.cache  # noqa: B019 - a test bed lasts as long as its process, or a test
    def group_of(self, megabytes: int) -> MemoryGroup:
        """Return a control group of so much memory, page cache included, for programs."""
        name = f"wal-lab-{os.getpid()}-{megabytes}"
        group = MemoryGroup(name, megabytes << 20, self._ledger)
        self._undo.callback(group.close)
        return group

    def while_running(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """Yield now and then while the child runs, having looked at what is watched over time."""
        while True:
            try:
                child.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                if self._timeline:
                    self._timeline.look()
                yield
            else:
                return

    def run_pgbench(
        self,
        conditions: Conditions,
        script: list[str],
        *,
        seconds: int | None = None,
        transactions: int | None = None,
        logged: bool = False,
        watch: Callable[[], None] | None = None,
    ) -> tuple[Measured, dict[str, int]]:
        """Run pgbench; look once, in its midst, at how the server has its WAL open.

        `watch` is called now and then while it runs.
        """
        pgbench = Pgbench(self.server(conditions), self.cluster.socket)
        log = self.cluster.log.with_name("transactions") if logged else None
        arguments = pgbench.arguments(
            script,
            conditions.clients,
            threads=min(conditions.cpus or 1, conditions.clients),
            seconds=seconds,
            transactions=transactions,
            log=log,
        )
        # A server with a deadlock is to fail the sample, not to hang the run.
        deadline = time.monotonic() + (HANGING + 10 * seconds if seconds else math.inf)
        child = pgbench.start(
            *arguments, cpus=conditions.cpus, skipped=self.client_cpus(conditions)
        )
        try:
            flags: dict[str, int] = {}
            for _ in self.while_running(child):
                if watch:
                    watch()
                if not flags:
                    flags = open_flags(self.cluster.postmaster(), self.cluster.wal)
                if (flags and not watch and not self._timeline) or time.monotonic() > deadline:
                    break
            left = max(0.0, deadline - time.monotonic()) if seconds else None
            return pgbench.finish(child, log, left), flags
        finally:
            process.end_group(child)
