"""The bed of the virtual machine: every sample in a clone of a guest, none disturbs another."""

import hashlib
import platform
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil

from wallab.bench import asked, templates, workloads
from wallab.bench.asked import Asked
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.files.digest import sha256
from wallab.files.timestamp import utc
from wallab.machine import checkout
from wallab.progress import say
from wallab.record.conditions import Conditions, server_name
from wallab.record.experiment import Cell, Experiment, Preset
from wallab.record.manifest import BedReport
from wallab.record.samples import Sample
from wallab.record.virtualmachine import VirtualMachine
from wallab.virtual import clone, emulator, kernel, python, qemu, rootfs, template, turns
from wallab.virtual.emulator import Machine
from wallab.virtual.guests import Guests
from wallab.virtual.message import Answer, Order
from wallab.virtual.setup import Setup
from wallab.virtual.template import Recipe, Template

HOST = "host.jsonl"
"""Of a run: what belongs to the machine that measured, and to no sample."""

MAKER = "stock"
"""The variant that makes the templates, whatever a run measures."""

_FILE_SYSTEMS = ("xfs", "ext4", "btrfs")
_BASE_MB = 2048
_PER_SCALE_MB = 64
"""The guest's memory: its kernel's, and the drives' content, snapshot and page cache."""

_ANGLES_NS = 100_000_000
"""A sample begins up to so much later: ten revolutions and more of any platter."""


def memory_mb(conditions: Conditions) -> int:
    """Return the memory of the guest for cells like that, whatever other cells there are."""
    return _BASE_MB + _PER_SCALE_MB * conditions.scale


def check(experiment: Experiment) -> None:
    """LabError unless the experiment can be had in a virtual machine."""
    if {drive.kind for drive in experiment.drive.values()} != {"simulated"}:
        raise LabError("real drives take real time: leave --machine virtual out, or --drive")


def jobs(asked: int | None, machine: VirtualMachine) -> int:
    """Return how many samples are measured at a time: as asked, else what this machine holds."""
    if asked is not None:
        return asked
    available = psutil.virtual_memory().available >> 20
    return max(1, min(len(psutil.Process().cpu_affinity()), available // max(machine.memory_mb)))


class VirtualBed:
    """Templates by what they are made for, and clones of them."""

    def __init__(
        self,
        experiment: Experiment,
        preset: Preset,
        cells: tuple[Cell, ...],
        trees: Mapping[str, Path],
        *,
        seed: int,
        folder: Path,
        workers: int | None,
        packages: Mapping[str, str] | None = None,
    ) -> None:
        """`trees` are the installed servers, those that make templates included.

        `folder` is the run's. Of Debian's packages the named versions are taken. Finds what the
        machine is made of, and starts nothing; MachineError where something is lacking.
        """
        check(experiment)
        self._qemu = qemu.find(packages)
        self._experiment = experiment
        self._preset = preset
        self._seed = seed
        self._folder = folder
        self._lock = threading.Lock()
        self._guests: Guests | None = None
        self._notes: list[bytes] = []
        self._kernel = kernel.fetch(packages)
        self._python = python.find(packages)
        self._root = rootfs.root(self._kernel, self._python)
        self._servers = {name: rootfs.server(tree) for name, tree in trees.items()}
        self._first = self._written_first()
        self._asked = Asked(experiment, preset, cells, trees)
        self._cells = cells
        self._lacking = {
            asked.key(cell): reason for cell in cells if (reason := _lacking(self._asked.of(cell)))
        }
        self._emulator = emulator.version(self._qemu)
        self._recipes = {
            self._template_name(conditions): self._recipe(conditions)
            for conditions in self._measured()
        }
        self._templates: dict[str, Template] = {}
        self._methods: dict[str, tuple[str, ...]] = {}
        self.machine = self._described()
        self.jobs = jobs(workers, self.machine)

    def _measured(self) -> list[Conditions]:
        """Return the conditions of the cells that may be had, as far as is known."""
        return [self._asked.of(cell) for cell in self._cells if not self.lacks(cell)]

    def _template_name(self, conditions: Conditions) -> str:
        """Name a template: its cluster, its drives, and whether its tables are in memory."""
        drives = [
            "-".join((name, profile, filesystem))
            for name, profile, filesystem in conditions.drive_kinds
        ]
        warm = template.warm(self._experiment, self._preset, conditions)
        state = "warm" if warm else "cold"
        return "-".join((templates.folder_name(conditions), *drives, state))

    def _written_first(self) -> Path:
        """Return the first file system, which is small, in the cache."""
        data = rootfs.first(self._kernel)
        digest = hashlib.sha256(data).hexdigest()[:16]
        file = self._kernel.folder.with_name(f"first-{digest}")
        if not file.exists():
            partial = file.with_name(f".{file.name}.{threading.get_native_id()}.partial")
            partial.write_bytes(data)
            partial.rename(file)
        return file

    def _recipe(self, conditions: Conditions) -> Recipe:
        maker = server_name(conditions.source, MAKER)
        order = template.order_of(self._experiment, self._preset, conditions, maker)
        parts = self._parts(conditions, maker)(Path("/ram"), Path("/orders"))
        return Recipe(
            order=order,
            options=parts.options(),
            emulator=self._emulator[1],
            firmware=self._qemu.firmware,
            turns=turns.digest(),
            kernel=sha256(self._kernel.image),
            first=sha256(self._first),
            root=self._root.sha256,
            server=self._servers[maker].sha256,
        )

    def _described(self) -> VirtualMachine:
        if not self._recipes:
            raise MachineError(
                f"nothing can be measured here: {'; '.join(dict.fromkeys(self._lacking.values()))}"
            )
        recipe = next(iter(self._recipes.values()))
        # The options of the others differ in their memory alone.
        return VirtualMachine(
            mips=self._experiment.mips,
            memory_mb=tuple(sorted({memory_mb(c) for c in self._asked})),
            emulator=self._emulator[0],
            emulator_sha256=self._emulator[1],
            firmware_sha256=recipe.firmware,
            turns=recipe.turns,
            options=recipe.options,
            packages=dict(sorted(self._packages().items())),
            kernel=self._kernel.version,
            kernel_sha256=recipe.kernel,
            first_sha256=recipe.first,
            root_sha256=recipe.root,
            servers={name: image.sha256 for name, image in sorted(self._servers.items())},
            templates={name: recipe.sha256 for name, recipe in self._recipes.items()},
        )

    def _packages(self) -> dict[str, str]:
        machine = rootfs.versions() | self._python.versions
        return machine | self._kernel.versions | self._qemu.versions

    def _parts(self, conditions: Conditions, server: str) -> Callable[[Path, Path], Machine]:
        def machine(ram: Path, orders: Path) -> Machine:
            return Machine(
                qemu=self._qemu,
                kernel=self._kernel.image,
                first=self._first,
                root=self._root.path,
                server=self._servers[server].path,
                orders=orders,
                ram=ram,
                memory_mb=memory_mb(conditions),
                mips=self._experiment.mips,
            )

        return machine

    @property
    def methods(self) -> dict[str, tuple[str, ...]]:
        """Server -> its values of wal_sync_method, as it tells them in the guest."""
        return dict(self._methods)

    def open(self) -> BedReport:
        """Make the templates that the cache lacks, and ask the servers what they can do."""
        try:
            self._guests = Guests()
            self._note({"host": platform.node(), "started": utc(), "jobs": self.jobs})
            representative = {
                self._template_name(conditions): conditions for conditions in self._measured()
            }
            for name, conditions in representative.items():
                self._templates[name] = self._make(name, conditions)
            self._probe()
        except BaseException:
            self.close()
            raise
        answers = {name: made.answer for name, made in self._templates.items()}
        clusters = {
            name: particulars
            for name, answer in answers.items()
            if answer.report
            for particulars in answer.report.templates.values()
        }
        mounts = {
            f"{drive} ({name})" if len(answers) > 1 else drive: words
            for name, answer in answers.items()
            if answer.report
            for drive, words in answer.report.mounts.items()
        }
        guest = next(iter(answers.values())).machine
        memory = {name: made.memory_sha256 for name, made in self._templates.items()}
        return BedReport(clusters, mounts, guest, memory)

    def _make(self, name: str, conditions: Conditions) -> Template:
        recipe = self._recipes[name]
        if (kept := template.kept(recipe)) is not None:
            return kept
        say(f"making the template {name}, once: a guest boots and loads its cluster")
        begun = time.monotonic()
        maker = server_name(conditions.source, MAKER)
        assert self._guests is not None
        made = template.make(recipe, self._parts(conditions, maker), self._guests)
        self._note({"template": name, "seconds": round(time.monotonic() - begun, 1)})
        return made

    def _probe(self) -> None:
        """Ask every server, in a clone of each template, what it lacks for its cells."""
        probed: dict[tuple[str, str], list[Cell]] = {}
        for cell in self._cells:
            if not self.lacks(cell):
                conditions = self._asked.of(cell)
                pair = (self._template_name(conditions), conditions.server)
                probed.setdefault(pair, []).append(cell)

        def probe(item: tuple[tuple[str, str], list[Cell]]) -> Answer:
            (_, server), cells = item
            order = Order(
                kind="probe", experiment=self._experiment, preset=self._preset, server=server,
                cells=tuple(cells),
            )  # fmt: skip
            return self._cloned(self._asked.of(cells[0]), order)

        pool = ThreadPoolExecutor(self.jobs)
        try:
            for ((_, server), cells), answer in zip(
                probed.items(), pool.map(probe, probed.items()), strict=True
            ):
                self._methods[server] = answer.methods
                for cell, reason in zip(cells, answer.lacking, strict=True):
                    if reason:
                        self._lacking[asked.key(cell)] = reason
        except BaseException:
            assert self._guests is not None
            self._guests.end_all()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def lacks(self, cell: Cell) -> str:
        """Say why the cell is N/A; nothing if it can be measured."""
        return self._lacking.get(asked.key(cell), "")

    def sample(
        self, cell: Cell, round_number: int, position: int, *, control: bool = False
    ) -> Sample:
        """Measure the cell in a clone; may be called from several threads at a time."""
        order = self.order(cell, round_number, position, control=control)
        begun = time.monotonic()
        answer = self._cloned(self._asked.of(cell), order)
        self.note_sample(order, time.monotonic() - begun, control=control)
        return sampled(answer)

    def order(self, cell: Cell, round_number: int, position: int, *, control: bool) -> Order:
        """Return what a guest is told that measures the cell."""
        seed, wait = self._chance(cell, round_number, control)
        return Order(
            kind="sample",
            experiment=self._experiment,
            preset=self._preset,
            server=self._asked.of(cell).server,
            cells=(cell,),
            round=round_number,
            position=position,
            seed=seed,
            wait_ns=wait,
        )

    def note_sample(self, order: Order, seconds: float, *, control: bool, **where: str) -> None:
        """Note what a sample took, here or where else it was measured."""
        (cell,) = order.cells
        note = {"cell": cell, "round": order.round, "control": control}
        self._note(note | {"seconds": round(seconds, 2)} | where)

    def setup(self, cell: Cell) -> Setup:
        """Return what else any host needs that measures the cell; after open."""
        conditions = self._asked.of(cell)
        name = self._template_name(conditions)
        return Setup(
            lab=checkout.files(),
            packages=self._qemu.versions,
            recipe=self._recipes[name],
            memory=self._templates[name].memory_sha256,
            server=self._servers[conditions.server].sha256,
            memory_mb=memory_mb(conditions),
            mips=self._experiment.mips,
        )

    def parcels(self) -> dict[str, Path]:
        """Return what other hosts are sent, by its sha256."""
        images = [self._root, *self._servers.values()]
        files = {sha256(file): file for file in (self._kernel.image, self._first)}
        return files | {image.sha256: image.path for image in images}

    def _chance(self, cell: Cell, round_number: int, control: bool) -> tuple[int, int]:
        """Return the clients' seed, and how many ns later the sample begins."""
        words = jsonfile.dumps([self._seed, cell, round_number, control])
        digest = hashlib.sha256(words).digest()
        return (
            int.from_bytes(digest[:4], "little"),
            int.from_bytes(digest[4:12], "little") % _ANGLES_NS,
        )

    def _cloned(self, conditions: Conditions, order: Order) -> Answer:
        parts = self._parts(conditions, order.server)
        assert self._guests is not None
        return clone.run(
            self._templates[self._template_name(conditions)], order, parts, self._guests
        )

    def _note(self, line: Mapping[str, object]) -> None:
        """Add a line to the run's account of this machine, once the run has a folder."""
        with self._lock:
            self._notes.append(msgspec.json.encode(line) + b"\n")
            if self._folder.is_dir():
                with (self._folder / HOST).open("ab") as stream:
                    stream.writelines(self._notes)
                self._notes.clear()

    def close(self) -> None:
        """End every guest; safe to call twice."""
        if self._guests:
            self._guests.close()


def sampled(answer: Answer) -> Sample:
    """Return the sample of an answer; MachineError if it has none."""
    if answer.sample is None:
        raise MachineError("the guest's answer has no sample")
    return answer.sample


def _lacking(conditions: Conditions) -> str:
    """Say what no virtual machine has; nothing if it may have all."""
    if programs := workloads.find(conditions.workload).packages:
        return f"the virtual machine has no {', '.join(programs)} yet"
    if (conditions.cpus or 1) > 1:
        return "the virtual machine has one processor"
    for drive in conditions.drives.values():
        if drive.filesystem not in _FILE_SYSTEMS:
            return f"the virtual machine's kernel has no {drive.filesystem}"
    return ""
