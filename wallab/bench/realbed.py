"""The bed of this machine: drives on it, servers, and the clusters that samples start from."""

import contextlib
import dataclasses
import functools
import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wallab.bench import installed, lacking, sampling, templates
from wallab.bench.asked import Asked
from wallab.bench.installed import Installed
from wallab.bench.stage import ARCHIVE, Stage
from wallab.drives.maker import DriveMaker, Drives
from wallab.errors import MachineError
from wallab.machine import mounts, provision
from wallab.machine.confinement import Confinement, Places
from wallab.machine.ledger import Ledger
from wallab.machine.memorygroup import MemoryGroup
from wallab.record import matrix
from wallab.record.conditions import Conditions
from wallab.record.experiment import Cell, Experiment, Preset
from wallab.record.manifest import BedReport
from wallab.record.samples import Sample
from wallab.servers.cluster import Cluster

Kinds = tuple[tuple[str, str, str], ...]
"""What a set of drives is made by (`Conditions.drive_kinds`)."""

_ARCHIVE = f"../../{ARCHIVE}"
"""Where finished segments go, from a data directory: no shell sees a path that somebody named."""


def archive_settings(archive: str | None, direct_cp: Path) -> dict[str, str]:
    """Return the settings that make a server archive its WAL by cp or by the lab's direct_cp."""
    if archive is None:
        return {}
    # The server puts what it archives for %p and %f; another % would be one of its own.
    program = shlex.quote(str(direct_cp)).replace("%", "%%") if archive == "direct_cp" else "cp"
    return {"archive_mode": "on", "archive_command": f'{program} "%p" "{_ARCHIVE}/%f"'}


class RealBed:
    """Drives with clusters on them, and the servers that can run them.

    Cells whose drives differ in profile or file system have sets of drives of their own; each set
    has a template for each source and scale.
    """

    def __init__(
        self,
        experiment: Experiment,
        preset: Preset,
        cells: tuple[Cell, ...],
        trees: Mapping[str, Path],
        confinement: Confinement,
        *,
        root_device_too: bool = False,
    ) -> None:
        """`trees` are the installed servers, by `Conditions.server`, which run in `confinement`.

        A device that holds the running system is refused unless named by `root_device_too`.
        """
        self._experiment = experiment
        self._preset = preset
        self._maker = DriveMaker(experiment.drive, root_device_too=root_device_too)
        self._asked = Asked(experiment, preset, cells, trees)
        self._trees = trees
        self.confinement = confinement
        """How servers and their clients are run, from the next sample on."""
        self._undo = contextlib.ExitStack()
        self._shown = contextlib.ExitStack()
        """What shows the servers."""
        self._seed: int | None = None
        self._last = False
        self._warm = False
        self._servers = Installed({}, {}, self.confinement)
        self._sets: dict[Kinds, Drives] = {}
        self._group: MemoryGroup | None = None

    @property
    def methods(self) -> dict[str, tuple[str, ...]]:
        """Server -> its values of wal_sync_method."""
        return dict(self._servers.methods)

    def open(self) -> BedReport:
        """Make everything ready; return what was found out about the templates."""
        try:
            self._install()
            self._make_ready()
            return self._make_templates()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Undo everything that open did; safe to call twice."""
        self._shown.close()
        self._undo.close()

    def take_over(
        self,
        experiment: Experiment,
        preset: Preset,
        cells: tuple[Cell, ...],
        trees: Mapping[str, Path],
        seed: int,
    ) -> None:
        """Measure a sample of these cells, on the drives and templates that open made.

        Every cell must ask for those. The seed is that of the clients' random numbers. The machine
        ends with the sample: nothing of it is undone.
        """
        self.hide_servers()
        self._experiment, self._preset, self._trees, self._seed = experiment, preset, trees, seed
        self._last = True
        self._asked = Asked(experiment, preset, cells, trees)
        self._show_servers()
        self._make_programs_ready()

    def warm_up(self) -> None:
        """Mount the drives and read the tables, ahead of one sample; there must be one template."""
        (conditions,) = self._asked
        stage = self._stage(conditions, None)
        for drive in stage.drives.values():
            drive.restore()
            drive.mount()
        stage.cluster.read_into_memory()
        self._warm = True

    def _cool_down(self, conditions: Conditions) -> bool:
        """Return whether a sample finds what warm_up did, as only the first one may."""
        warm, self._warm = self._warm, False
        if warm and any(asked.mount_options for asked in conditions.drives.values()):
            for drive in self._sets[conditions.drive_kinds].values():
                drive.unmount()
            return False
        return warm

    def hide_servers(self) -> None:
        """Let go of the installed trees, until others are taken over."""
        self._shown.close()
        self._servers = Installed({}, {}, self.confinement)

    def _show_servers(self) -> None:
        self._servers = installed.shown(
            self._trees, self._ledger, self._shown, self.confinement, private=self._private
        )

    def _install(self) -> None:
        """Install the programs that the workloads run; MachineError where that fails."""
        try:
            provision.install(self._asked.packages())
        except provision.SetupError as error:
            raise MachineError(str(error)) from None

    def _make_ready(self) -> None:
        kinds = self._maker.kinds
        self._private = "simulated" in kinds or not all(
            map(self.confinement.can_run, self._trees.values())
        )
        if self._private:
            mounts.enter_private_namespace()
        self._ledger = Ledger.open()
        self._undo.callback(self._ledger.close)
        lasting = None
        if kinds != {"simulated"}:
            lasting = Ledger.open(lasting=True)
            self._undo.callback(lasting.close)
        for asked in self._asked:
            if asked.drive_kinds not in self._sets and self._maker.can(asked):
                suffix = f"-{len(self._sets) + 1}" if self._sets else ""
                self._sets[asked.drive_kinds] = self._maker.make(
                    asked, suffix, (self._ledger, lasting), self._undo
                )
        # File systems are mounted where the drives' servers do not live: the last process of
        # a namespace unmounts what is left there, and a server would then wait for itself.
        if self._private:
            mounts.enter_private_namespace()
        self._show_servers()
        self._make_programs_ready()

    def _make_programs_ready(self) -> None:
        """Limit what the server may use, and put the archiver where it can be run."""
        limit = matrix.memory_mb(self._experiment, self._preset)
        if limit and not self._group:
            self._group = self._group_of(limit, "")
        if any(asked.archive == "direct_cp" for asked in self._asked):
            shutil.copy2(provision.copy_program(), self._direct_cp)
            self._direct_cp.chmod(0o755)

    @property
    def _direct_cp(self) -> Path:
        return self._ledger.folder / "direct_cp"

    def _group_of(self, megabytes: int, suffix: str) -> MemoryGroup:
        group = MemoryGroup(f"wal-lab-{os.getpid()}{suffix}", megabytes << 20, self._ledger)
        self._undo.callback(group.close)
        return group

    @functools.cache  # noqa: B019 - a bed lasts as long as its process, or a test
    def _group_for_programs(self, megabytes: int) -> MemoryGroup:
        """Return a control group of so much memory, page cache included."""
        return self._group_of(megabytes, f"-{megabytes}")

    def _client_cpus(self, conditions: Conditions) -> int:
        """Return how many CPUs the clients have for themselves; 0: they share the server's.

        Clients and server are apart if that is possible in all cells of the run, since cells that
        share could not be compared with those that do not.
        """
        have = len(os.sched_getaffinity(0))
        asked = [other.cpus or 0 for other in self._asked]
        most = max((cpus for cpus in asked if cpus <= have), default=0)
        return conditions.cpus or 0 if 0 < 2 * most <= have else 0

    def lacks(self, cell: Cell) -> str:
        """Say why the cell is N/A; nothing if it can be measured."""
        conditions = self._asked.of(cell)
        for axis, value in cell.items():
            if reason := lacking.reason(axis, value, conditions, self._servers):
                return reason
        drives = self._sets[conditions.drive_kinds]
        for name, asked in conditions.drives.items():
            if reason := drives[name].unavailable(asked.write_cache):
                return reason
        return ""

    def _settings(self, conditions: Conditions) -> dict[str, str]:
        settings = {"max_connections": str(conditions.clients + 20)} | conditions.settings
        return settings | archive_settings(conditions.archive, self._direct_cp)

    def _stage(self, conditions: Conditions, group: MemoryGroup | None) -> Stage:
        drives = self._sets[conditions.drive_kinds]
        folder = templates.folder_name(conditions)
        data = drives["data"].mount_point
        archive = data / ARCHIVE if conditions.archive else None
        copier = self._direct_cp if conditions.archive == "direct_cp" else None
        cluster = Cluster(
            data / "data" / folder,
            drives.get("wal", drives["data"]).mount_point / "pg_wal" / folder,
            self._ledger,
            self.confinement,
            group,
            Places(tuple(filter(None, [archive])), tuple(filter(None, [copier]))),
        )
        return Stage(
            conditions=conditions,
            preset=self._preset,
            drives=drives,
            cluster=cluster,
            server=self._servers.paths[conditions.server],
            group=group,
            client_cpus=self._client_cpus(conditions),
            values=self._experiment.values,
            series=self._experiment.series,
            seed=self._seed,
            last=self._last,
        )

    def _make_templates(self) -> BedReport:
        """Load the clusters with the drives' timing off, and keep them."""
        made: dict[str, Any] = {}
        kinds: dict[str, list[str]] = {}
        for key, drives in self._sets.items():
            for drive in drives.values():
                drive.mount()
            by_folder: dict[str, Conditions] = {}
            for asked in self._asked:
                if asked.drive_kinds == key:
                    by_folder.setdefault(templates.folder_name(asked), asked)
            for folder, asked in by_folder.items():
                suffix = drives["data"].name.removeprefix("data")
                made[f"{folder}{suffix}"] = self._make_template(asked)
            for drive in drives.values():
                point = drive.mount_point
                kinds[drive.name] = [mounts.kind(point), *mounts.options(point)]
            for drive in drives.values():
                drive.unmount()
                drive.snapshot()
        return BedReport(made, kinds)

    def _make_template(self, asked: Conditions) -> dict[str, Any]:
        stage = self._stage(asked, None)
        self._undo.callback(stage.cluster.stop, signal.SIGQUIT)
        # What an axis sets belongs to its samples, and not to what all of them start from.
        settings = {"max_connections": str(asked.clients + 20)} | self._experiment.settings
        return templates.make(
            stage,
            self._experiment.workload,
            settings | {"fsync": "off"},
            self._experiment.initdb,
        )

    def sample(
        self, cell: Cell, round_number: int, position: int, *, control: bool = False
    ) -> Sample:
        """Measure the cell on a fresh copy of its template."""
        conditions = self._asked.of(cell)
        stage = self._stage(conditions, self._group)
        return sampling.take(
            dataclasses.replace(stage, ready=self._cool_down(conditions)),
            cell,
            (round_number, position),
            self._settings(conditions),
            self._group_for_programs,
        )
