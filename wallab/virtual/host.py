"""A host that measures for others: makes ready what a sample follows from, and runs clones."""

import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.files.digest import sha256
from wallab.machine import checkout
from wallab.progress import say
from wallab.virtual import clone, inputs, qemu, template, turns
from wallab.virtual.emulator import Machine
from wallab.virtual.guests import Guests
from wallab.virtual.message import Answer, Order
from wallab.virtual.qemu import Qemu
from wallab.virtual.setup import Setup
from wallab.virtual.template import Template

Fetch = Callable[[str, Path], None]
"""Writes the content with that sha256 to a file that is not there; OSError if it cannot be had."""


class _Ready(msgspec.Struct, frozen=True):
    """A setup as this host has it."""

    template: Template
    machine: Callable[[Path, Path], Machine]


class Host:
    """Answers orders for any setup, several at a time."""

    def __init__(self) -> None:
        """MachineError where the folder of running labs is not this user's."""
        self._guests = Guests()
        self._locks: defaultdict[bytes, threading.Lock] = defaultdict(threading.Lock)
        self._ready: dict[bytes, _Ready] = {}

    def answer(self, setup: Setup, order: Order, fetch: Fetch) -> Answer:
        """Return what a clone answers.

        GuestFailed where the order fails in the guest, Ended where the emulator did not live to
        see its end; any other MachineError or OSError: this host cannot do it.
        """
        name = jsonfile.dumps(setup)
        with self._locks[name]:
            if (ready := self._ready.get(name)) is None:
                ready = self._ready[name] = self._made_ready(setup, fetch)
        return clone.run(ready.template, order, ready.machine, self._guests)

    def _made_ready(self, setup: Setup, fetch: Fetch) -> _Ready:
        emulated = _same_emulator(setup)
        files = {what: parcel(digest, fetch) for what, digest in setup.parcels.items()}

        def machine(server: Path) -> Callable[[Path, Path], Machine]:
            return lambda ram, orders: Machine(
                qemu=emulated, kernel=files["kernel"], first=files["first"], root=files["root"],
                server=server, orders=orders, ram=ram, memory_mb=setup.memory_mb, mips=setup.mips,
            )  # fmt: skip

        if (made := template.kept(setup.recipe)) is None:
            say("making a template, once: a guest boots and loads its cluster")
            made = template.make(setup.recipe, machine(files["maker"]), self._guests)
        if made.memory_sha256 != setup.memory:
            raise MachineError(
                f"the template {made.folder} became another here than where the run was begun: "
                f"sha256 {made.memory_sha256[:16]}, not {setup.memory[:16]}"
            )
        return _Ready(made, machine(files["server"]))

    def close(self) -> None:
        """End every guest; safe to call twice."""
        self._guests.close()


def _same_emulator(setup: Setup) -> Qemu:
    """Return the emulator; MachineError names each input of this host's own that is another."""
    emulated = qemu.find(setup.packages)
    recipe = setup.recipe
    here = {
        "the lab (check out the same commit)": (setup.lab, checkout.files()),
        "the emulator": (recipe.emulator, emulated.sha256),
        "the firmware": (recipe.firmware, emulated.firmware),
        "the emulator's turns": (recipe.turns, turns.digest()),
    }
    differing = [
        inputs.words(what, "", known, "", own)
        for what, (known, own) in here.items()
        if known != own
    ]
    if differing:
        raise MachineError(f"not the same here as in the run: {'; '.join(differing)}")
    return emulated


def parcel(digest: str, fetch: Fetch) -> Path:
    """Return the file with that content: of this cache's own images, or one that was sent."""
    home = paths.cache() / "virtual"
    for stamp in home.glob("*/sha256"):
        if stamp.read_text() == digest and (image := stamp.with_name("image")).exists():
            return image
    file = home / "parcels" / digest
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix="partial-") as name:
            sent = Path(name) / "sent"
            fetch(digest, sent)
            if sha256(sent) != digest:
                raise OSError(f"what was sent as {digest[:16]} is something else")
            sent.rename(file)
    return file
