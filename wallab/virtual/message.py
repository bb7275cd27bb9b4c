"""What the host and the agent in the guest say to each other: an order, and its answer."""

from typing import Literal

import msgspec

from wallab.files import jsonfile
from wallab.record.experiment import Cell, Experiment, Preset
from wallab.record.manifest import BedReport, Machine
from wallab.record.samples import Sample

_HEAD = 8
"""Bytes that say how long an order is."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the guest is to do; the device for orders holds one."""

    kind: Literal["template", "probe", "sample"]
    experiment: Experiment
    preset: Preset
    server: str
    """Its name; the device for servers holds it."""
    cells: tuple[Cell, ...]
    """One, but to probe."""
    round: int = 0
    position: int = 0
    seed: int = 0
    """Of pgbench."""
    wait_ns: int = 0
    """Before all else: so the platter stands at another angle."""
    warm: bool = False
    """Whether the template is kept with its drives mounted and its tables in memory."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    error: str = ""
    report: BedReport | None = None
    """Of the template."""
    machine: Machine | None = None
    """The guest, as the template was made in it."""
    methods: tuple[str, ...] = ()
    """The server's values of wal_sync_method, if it was probed."""
    lacking: tuple[str, ...] = ()
    """Why the cells cannot be measured, each; nothing where they can."""
    sample: Sample | None = None


def packed(order: Order) -> bytes:
    """Return the order as the device holds it."""
    text = jsonfile.dumps(order)
    return len(text).to_bytes(_HEAD, "little") + text


def unpacked(device: bytes) -> Order:
    """Return the order that begins the device."""
    length = int.from_bytes(device[:_HEAD], "little")
    return jsonfile.loads(device[_HEAD : _HEAD + length], Order)
