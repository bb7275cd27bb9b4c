"""The drives that an experiment asks for, made: simulated ones, devices and directories."""

import contextlib
from pathlib import Path

from wallab.drives import real as realdrive
from wallab.drives.drive import Drive
from wallab.drives.real import DeviceDrive, DirectoryDrive
from wallab.drives.simulated import SimulatedDrive
from wallab.machine import mounts
from wallab.machine.ledger import Ledger
from wallab.record.conditions import Conditions, DriveConditions
from wallab.record.experiment import DriveSpec

Drives = dict[str, Drive]
"""data, and wal if the WAL has one of its own -> the drive."""


class DriveMaker:
    """Makes sets of drives, each set for other conditions."""

    def __init__(self, wanted: dict[str, DriveSpec], *, root_device_too: bool) -> None:
        """A device that holds the running system is refused unless `root_device_too`."""
        self._wanted = wanted
        self._root_device_too = root_device_too

    @property
    def kinds(self) -> set[str]:
        """What kinds of drives there are in a set: simulated, device, directory."""
        return {drive.kind for drive in self._wanted.values()}

    def can(self, conditions: Conditions) -> bool:
        """Whether this kernel has the file system that simulated drives get."""
        kinds = {asked.filesystem for asked in conditions.drives.values()}
        return "simulated" not in self.kinds or all(map(mounts.kernel_knows, kinds))

    def make(
        self,
        conditions: Conditions,
        suffix: str,
        ledgers: tuple[Ledger, Ledger | None],
        undo: contextlib.ExitStack,
    ) -> Drives:
        """Make a set; its drives' names end with the suffix, and `undo` closes them.

        The second ledger, a lasting one, owns what real drives need undone. MachineError where two
        drives share a device, but not its write cache.
        """
        made: Drives = {}
        for name, wanted in self._wanted.items():
            made[name] = self._drive(f"{name}{suffix}", wanted, conditions.drives[name], *ledgers)
            undo.callback(made[name].close)
        realdrive.check_apart(
            {
                drive: self._wanted[name].write_cache
                for name, drive in made.items()
                if isinstance(drive, DeviceDrive)
            }
        )
        return made

    def _drive(
        self,
        name: str,
        wanted: DriveSpec,
        asked: DriveConditions,
        ledger: Ledger,
        lasting: Ledger | None,
    ) -> Drive:
        directory = Path(wanted.directory)
        if wanted.kind != "simulated":
            assert lasting is not None
            if wanted.kind == "directory":
                return DirectoryDrive(name, directory, lasting)
            return DeviceDrive(name, directory, lasting, root_device_too=self._root_device_too)
        assert wanted.size_mb is not None
        return SimulatedDrive(
            name,
            asked.profile,
            wanted.size_mb << 20,
            asked.filesystem,
            ledger,
            elevator=wanted.elevator,
            mkfs=wanted.mkfs.get(asked.filesystem, ()),
        )
