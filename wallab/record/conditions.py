"""What a cell asks of the test bed: what the experiment fixes, as the cell's axes change it."""

import msgspec


class Conditions(msgspec.Struct):
    """Everything that a sample is made under; each axis writes what it decides."""

    scale: int
    """How large the template is, in the workload's unit."""
    clients: int
    variant: str = "stock"
    source: str | None = None
    """None: the experiment's."""
    workload: str | None = None
    """None: the experiment's."""
    write_cache: str | None = None
    """Of the drives that fix none."""
    profile: str | None = None
    """Of every drive; None: the drive's own."""
    filesystem: str | None = None
    """Of every drive; None: the drive's own."""
    mount_options: tuple[str, ...] = ()
    read_ahead: int | None = None
    """Of every drive, in sectors of 512 bytes; None: the kernel's."""
    cpus: int | None = None
    """How many CPUs the server has, and the clients, too, or share; None: all."""
    archive: str | None = None
    """The command that copies finished WAL segments; None: there is no archive."""
    settings: dict[str, str] = {}
    """Of postgresql.conf."""

    @property
    def server(self) -> str:
        """The name of the server that is measured: its variant, and its source if that varies."""
        return f"{self.source}/{self.variant}" if self.source else self.variant
