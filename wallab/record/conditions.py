"""What a cell asks for: what its experiment fixes, as the values on its axes change it."""

import msgspec

from wallab.record.driveprofile import PROTECTED
from wallab.record.experiment import DriveSpec
from wallab.record.filesystem import BARRIER_OPTION
from wallab.record.writecache import WriteCache


class Choice(msgspec.Struct):
    """What the values of a cell decide; each axis writes its own part, whatever the order."""

    scale: int
    """How large the template is, in the workload's unit."""
    clients: int
    workload: str
    variant: str = "stock"
    source: str | None = None
    """None: the experiment's."""
    write_cache: WriteCache | None = None
    """Of the drives that fix none."""
    barriers: bool | None = None
    """Whether the file systems make the drives flush their caches; None: write_cache says."""
    profile: str | None = None
    """Of every drive; None: the drive's own."""
    filesystem: str | None = None
    """Of every drive; None: the drive's own."""
    read_ahead: int | None = None
    """Of every drive, in sectors of 512 bytes; None: the kernel's."""
    cpus: int | None = None
    """How many CPUs the server has, and the clients, too, or share; None: all."""
    archive: str | None = None
    """The command that copies finished WAL segments; None: there is no archive."""
    rate: int | None = None
    """Transactions a second that the clients begin; None: as many as they can."""
    think_ms: int = 0
    """How long a client rests before each transaction."""
    settings: dict[str, str] = {}
    """Of postgresql.conf."""


class DriveConditions(msgspec.Struct, frozen=True):
    """What a cell asks of one of its drives."""

    profile: str
    """Of a simulated drive; else nothing."""
    filesystem: str
    """Of a simulated drive."""
    write_cache: WriteCache
    mount_options: tuple[str, ...] = ()
    read_ahead: int | None = None
    """In sectors of 512 bytes; None: the kernel's."""


def server_name(source: str | None, variant: str) -> str:
    """Return the name of a server in a run whose cells may name its source."""
    return f"{source}/{variant}" if source else variant


class Conditions(msgspec.Struct, frozen=True):
    """Everything that a sample of a cell is made under."""

    scale: int
    clients: int
    workload: str
    variant: str
    source: str | None
    """None: the experiment's."""
    cpus: int | None
    archive: str | None
    settings: dict[str, str]
    drives: dict[str, DriveConditions]
    rate: int | None = None
    """Transactions a second that the clients begin; None: as many as they can."""
    think_ms: int = 0
    """How long a client rests before each transaction."""

    @property
    def server(self) -> str:
        """The name of the server that is measured: its variant, and its source if that varies."""
        return server_name(self.source, self.variant)

    @property
    def drive_kinds(self) -> tuple[tuple[str, str, str], ...]:
        """What its drives are made by: name, profile and file system of each."""
        return tuple((name, drive.profile, drive.filesystem) for name, drive in self.drives.items())


def settled(choice: Choice, drives: dict[str, DriveSpec]) -> Conditions:
    """Return what the choice comes to on an experiment's drives."""
    return Conditions(
        scale=choice.scale,
        clients=choice.clients,
        workload=choice.workload,
        variant=choice.variant,
        source=choice.source,
        cpus=choice.cpus,
        archive=choice.archive,
        settings=choice.settings,
        rate=choice.rate,
        think_ms=choice.think_ms,
        drives={name: _drive(choice, spec) for name, spec in drives.items()},
    )


def _drive(choice: Choice, spec: DriveSpec) -> DriveConditions:
    profile = choice.profile or spec.profile
    filesystem = choice.filesystem or spec.filesystem
    write_cache: WriteCache = spec.write_cache or choice.write_cache or "as-is"
    options: tuple[str, ...] = ()
    if spec.kind == "directory":
        write_cache = "as-is"
    elif choice.barriers is not None:
        write_cache, options = _barriers(choice.barriers, profile, filesystem)
    return DriveConditions(profile, filesystem, write_cache, options, choice.read_ahead)


def _barriers(on: bool, profile: str, filesystem: str) -> tuple[WriteCache, tuple[str, ...]]:
    """Return the cache, on or kept by its battery in either case, and options of the mount."""
    kept = profile in PROTECTED
    flushed: WriteCache = "battery-flushed" if kept else "on"
    if on:
        return flushed, ()
    if option := BARRIER_OPTION.get(filesystem):
        return flushed, (option,)
    return "battery" if kept else "on-unflushed", ()
