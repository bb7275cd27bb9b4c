"""An experiment as data: its axes, drives, settings and presets, and its cells."""

from typing import Annotated, Literal

import msgspec

from wallab.record.writecache import WriteCache

Positive = Annotated[int, msgspec.Meta(ge=1)]
Only = dict[str, str | list[str]]
"""Axis -> its value or values, of the cells that a preset measures."""
Cell = dict[str, str]
"""One point of the axes: axis -> value, in the order of the experiment's axes."""


class DriveSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A drive as an experiment asks for it."""

    profile: str = ""
    """Of a simulated drive."""
    size_mb: Annotated[int, msgspec.Meta(ge=512)] | None = None
    """Of a simulated drive."""
    elevator: str | None = None
    """The host's in front of a simulated drive; None: that of its profile."""
    kind: Literal["simulated", "device", "directory"] = "simulated"
    directory: str = ""
    """On a real drive: the work happens in a folder of its own below."""
    filesystem: str = "xfs"
    """Of a simulated drive."""
    write_cache: WriteCache | None = None
    """Fixed; without it an axis decides."""
    mkfs: dict[str, tuple[str, ...]] = {}
    """File system -> further arguments of its mkfs."""


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is measured."""

    about: str
    scale: Positive
    """The size of the database in the workload's unit, such as pgbench's -s."""
    clients: Positive
    rounds: Positive
    transactions: Positive | None = None
    """For each client (pgbench -t); either this or seconds."""
    seconds: Positive | None = None
    """Of a measured run (pgbench -T)."""
    memory_mb: Annotated[int, msgspec.Meta(ge=64)] | None = None
    """Instead of the experiment's memory_mb, where this preset's data are smaller."""
    files_mb: Annotated[int, msgspec.Meta(ge=64)] = 256
    """How much the workloads bonnie and sysbench have in their files."""
    pace: Positive = 1
    """How many times faster than TPC-C's people the workload tpcc's key and think."""
    warm_up_seconds: Annotated[int, msgspec.Meta(ge=0)] = 1
    precision: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    """Percent: a cell whose 95% interval is at most ± this needs no more rounds."""
    control: Cell | None = None
    """A cell that is measured under two names, to show what a difference of nothing looks like."""
    only: tuple[Only, ...] = ()
    """Axis -> value or values of the cells that stay; a cell stays if one of them fits."""


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of matrix.toml."""

    title: str
    source: str
    workload: str
    rows: tuple[str, ...]
    column: str
    axes: dict[str, tuple[str, ...]]
    drive: dict[str, DriveSpec]
    settings: dict[str, str]
    preset: dict[str, Preset]
    machine: Literal["real", "virtual"] = "real"
    """What it is measured on, unless --machine says something else."""
    mips: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1000
    """Million instructions a second, of a virtual machine."""
    initdb: tuple[str, ...] = ()
    """Further options of the initdb that makes the templates."""
    memory_mb: Annotated[int, msgspec.Meta(ge=64)] | None = None
    """What the server and all that it starts may use, page cache included; None: no limit."""
    values: tuple[str, ...] = ("tps",)
    """What the table shows of each cell; intervals and ratios are the first one's."""
    series: tuple[str, ...] = ()
    """What is looked at over time while a sample is measured."""
    relative_to: str | None = None
    compare_to: str | None = None
    """The variant that the others are compared with; None: each with what it is built on."""
    reference: str | None = None
    usual: Only = {}
    """Axis -> value or values that a preset's condition means where it does not name the axis."""
    notes: tuple[str, ...] = ()
    """Said under the table."""
