"""Disks of a made-up machine."""

from fakesysfs import FakeMachine

from wallab.machine import blockdevice
from wallab.machine.blockdevice import Disk


def ata(machine: FakeMachine) -> Disk:
    """An ATA disk."""
    return blockdevice.describe(machine.scsi("sda", "8:0", "ahci", "ATA", "ST3500413AS", 0))


def scsi(machine: FakeMachine) -> Disk:
    """A SCSI disk."""
    return blockdevice.describe(machine.scsi("sdb", "8:16", "mptsas", "HP", "EF0300FATFD", 1))
