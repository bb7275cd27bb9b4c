"""Templates: guests with a loaded cluster, stopped at one instruction, to be cloned."""

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from wallab import paths
from wallab.bench import workloads
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.record import matrix
from wallab.record.conditions import Conditions
from wallab.record.experiment import Cell, Experiment, Preset
from wallab.virtual import message
from wallab.virtual.devices import ORDERS_MB
from wallab.virtual.emulator import Emulator, Machine
from wallab.virtual.guests import Guests
from wallab.virtual.message import Answer, Order

_PIECE = 1 << 20


class GuestFailed(MachineError):
    """The guest could not do what it was told; it could not do so anywhere else, either."""


class Recipe(msgspec.Struct, frozen=True):
    """All that a template's memory follows from."""

    order: Order
    options: tuple[str, ...]
    """Of the emulator."""
    emulator: str
    """sha256, as all that follow."""
    firmware: str
    turns: str
    """Digest of sources."""
    kernel: str
    first: str
    root: str
    server: str

    @property
    def sha256(self) -> str:
        """Its name."""
        return hashlib.sha256(jsonfile.dumps(self)).hexdigest()


class Template(msgspec.Struct, frozen=True):
    """A template in the cache."""

    folder: Path
    answer: Answer
    memory_sha256: str

    @property
    def ram(self) -> Path:
        """The guest's memory."""
        return self.folder / "ram"

    @property
    def devices(self) -> Path:
        """The state of everything else."""
        return self.folder / "devices"


def order_of(experiment: Experiment, preset: Preset, conditions: Conditions, server: str) -> Order:
    """Return what a guest is told that becomes the template of such cells.

    Nothing of it depends on which cells a run has, nor on what the drives and the server are
    switched to for a sample.
    """
    cell: Cell = {"source": conditions.source} if conditions.source else {}
    drives = {
        name: msgspec.structs.replace(
            experiment.drive[name],
            profile=asked.profile,
            filesystem=asked.filesystem,
            write_cache="off",
        )
        for name, asked in conditions.drives.items()
    }
    bare = Experiment(
        title="",
        source="",
        workload=experiment.workload,
        rows=(),
        column="",
        axes={axis: (value,) for axis, value in cell.items()},
        drive=drives,
        settings=experiment.settings,
        initdb=experiment.initdb,
        preset={},
    )
    how_much = msgspec.structs.replace(
        preset, about="", scale=conditions.scale, rounds=1, precision=None, control=None, only=(),
        transactions=None, seconds=1, memory_mb=None, warm_up_seconds=0,
    )  # fmt: skip
    assert matrix.conditions(bare, how_much, cell).drive_kinds == conditions.drive_kinds
    return Order(
        kind="template",
        experiment=bare,
        preset=how_much,
        server=server,
        cells=(cell,),
        warm=warm(experiment, preset, conditions),
    )


def warm(experiment: Experiment, preset: Preset, conditions: Conditions) -> bool:
    """Whether samples may find the tables in memory.

    Where memory is limited, the server reads them on its own account; some workloads begin cold.
    """
    limited = matrix.memory_mb(experiment, preset) is not None
    return not limited and not workloads.find(conditions.workload).cold


def kept(recipe: Recipe) -> Template | None:
    """Return the template of the cache; None if there is none, LabError if it is damaged."""
    folder = _folder(recipe)
    try:
        memory = (folder / "memory.sha256").read_text(errors="replace")
    except OSError:
        return None
    answer = folder / "answer.json"
    remedy = f"remove {folder}, which is made anew"
    return Template(folder, jsonfile.read(answer, Answer, remedy), memory)


def _folder(recipe: Recipe) -> Path:
    return paths.cache() / "virtual" / f"template-{recipe.sha256[:16]}"


@contextlib.contextmanager
def _alone(recipe: Recipe) -> Iterator[None]:
    """Let nobody else make the same template meanwhile."""
    folder = _folder(recipe)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(recipe: Recipe, machine: Callable[[Path, Path], Machine], guests: Guests) -> Template:
    """Return the template, made unless the cache has it.

    `machine` returns the guest's parts for its RAM and its orders; `guests` own the emulator while
    it runs. MachineError where the guest fails.
    """
    with _alone(recipe):
        if (template := kept(recipe)) is not None:
            return template
        folder = _folder(recipe)
        with (
            guests.work() as work,
            tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as name,
        ):
            made = Path(name) / "made"
            made.mkdir()
            orders = work / "orders"
            write_order(orders, recipe.order)
            emulated = Emulator(machine(made / "ram", orders), work, clone=False)
            with guests.started(emulated):
                answer = read_answer(emulated)
                emulated.save(made / "devices")
            jsonfile.save(made / "recipe.json", recipe)
            jsonfile.save(made / "answer.json", answer)
            memory = sparse_sha256(made / "ram")
            (made / "memory.sha256").write_text(memory)
            made.rename(folder)
        return Template(folder, answer, memory)


def sparse_sha256(file: Path) -> str:
    """Return a digest of a file, of which pieces of zeros are no part, with blocks or without."""
    digest = hashlib.sha256()
    nothing = bytes(_PIECE)
    with file.open("rb", buffering=0) as stream:
        end, place = file.stat().st_size, 0
        while place < end:
            try:
                place = os.lseek(stream.fileno(), place, os.SEEK_DATA) // _PIECE * _PIECE
            except OSError:  # zeros to the end
                break
            piece = os.pread(stream.fileno(), _PIECE, place)
            if piece != nothing[: len(piece)]:
                digest.update(place.to_bytes(8, "little") + piece)
            place += _PIECE
    return digest.hexdigest()


def write_order(file: Path, order: Order) -> None:
    """Write the device that an order comes on."""
    with file.open("wb") as stream:
        stream.write(message.packed(order))
        stream.truncate(ORDERS_MB << 20)


def read_answer(emulated: Emulator) -> Answer:
    """Let the guest run, and return its answer; GuestFailed if that is an error."""
    line = emulated.run()
    try:
        answer = jsonfile.loads(line, Answer)
    except msgspec.MsgspecError as error:
        raise GuestFailed(f"the guest's answer cannot be read: {error}") from None
    if answer.error:
        raise GuestFailed(f"in the virtual machine: {answer.error}")
    return answer
