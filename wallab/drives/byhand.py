"""A simulated drive that stays after the command that put it up: scripts/drive."""

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from wallab.drives import simulated
from wallab.drives.control import DriveControl
from wallab.drives.simulated import SimulatedDrive
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.machine import ledger, mountcopies, running
from wallab.machine.ledger import Ledger
from wallab.machine.loop import Queue
from wallab.machine.mounts import Mounted
from wallab.machine.running import Process
from wallab.progress import say
from wallab.record import driveprofile
from wallab.record.writecache import WriteCache

_BLKFLSBUF = 0x1261  # linux/fs.h


class HandDrive(msgspec.Struct, frozen=True):
    """What is known of a drive that was put up by hand."""

    mounted: Mounted
    profile: str
    size: int
    server: Process
    control: Path
    folder: Path

    @property
    def mount_point(self) -> Path:
        """Where its files are."""
        return self.mounted.point

    @property
    def filesystem(self) -> str:
        """What is on it."""
        return self.mounted.filesystem

    @property
    def loop(self) -> Path:
        """The loop device that carries the file system."""
        return self.mounted.loop.device


def _name(mount_point: Path) -> str:
    return "drive-" + hashlib.sha256(bytes(mount_point)).hexdigest()[:12]


def up(
    mount_point: Path, profile: str, size: int, filesystem: str, write_cache: WriteCache
) -> HandDrive:
    """Put an empty simulated drive under the directory, which must exist and be empty."""
    mount_point = mount_point.resolve()
    if not mount_point.is_dir():
        raise LabError(f"{mount_point}: no such directory; make it first")
    if mount_point.is_mount() or any(mount_point.iterdir()):
        raise LabError(f"{mount_point}: is in use or not empty; a drive goes under an empty one")
    ledger.clear_dead()
    owned = Ledger.open(_name(mount_point))
    try:
        drive = SimulatedDrive(
            "drive", profile, size, filesystem, owned, mount_point=mount_point, die_with_lab=False
        )
        try:
            drive.mount()
            drive.set_write_cache(write_cache)
            drive.timing(True)
            made = HandDrive(
                mounted=drive.mounted,
                profile=profile,
                size=size,
                server=running.identify(drive.server.pid),
                control=drive.socket,
                folder=owned.folder,
            )
            jsonfile.save(owned.folder / "drive.json", made)
            owned.hand_over(drive.server.pid)
        except BaseException:
            drive.close()
            raise
        drive.leave_running()
    except BaseException:
        owned.close()
        raise
    return made


def every() -> list[HandDrive]:
    """Return the drives that are up."""
    drives = []
    for home in ledger.homes():
        for file in sorted(home.glob("drive-*/drive.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                drive = jsonfile.load(file, HandDrive)
                if drive.server.find() is not None:
                    drives.append(drive)
    return drives


def find(mount_point: Path) -> HandDrive:
    """Return the drive under the directory; LabError if there is none."""
    mount_point = mount_point.resolve()
    for drive in every():
        if drive.mount_point == mount_point:
            return drive
    raise LabError(f"{mount_point}: no simulated drive is there; scripts/drive list shows them")


def control(drive: HandDrive) -> DriveControl:
    """Connect to the drive."""
    return DriveControl(drive.control)


def set_write_cache(drive: HandDrive, state: WriteCache) -> dict[str, str]:
    """Switch the drive's cache and tell the kernel; return what both read back as."""
    with contextlib.closing(control(drive)) as connection:
        return simulated.switch(connection, Queue(drive.loop), state)


def become(drive: HandDrive, profile: str) -> HandDrive:
    """Turn the drive into another one, with the same content; return what is known of it now."""
    parameters = " ".join(f"{key}={value}" for key, value in driveprofile.profile(profile).items())
    with contextlib.closing(control(drive)) as connection:
        connection.ask_idle(f"profile {parameters}")
    changed = msgspec.structs.replace(drive, profile=profile)
    jsonfile.save(drive.folder / "drive.json", changed)
    return changed


def _wait_until_unused(drive: HandDrive, patience: float = 10) -> None:
    """Wait until no mount of the file system is left, in no namespace; LabError past that (s).

    A file system that lives on would go on with what it remembers.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            os.close(os.open(drive.loop, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except OSError as error:
            if time.monotonic() > deadline:
                raise LabError(
                    f"{drive.loop}: {error.strerror}: another mount namespace, of a container or "
                    "of a running lab, still shows the file system; end that, then this works"
                ) from None
            time.sleep(0.05)
        else:
            return


@contextlib.contextmanager
def _unmounted(drive: HandDrive) -> Iterator[DriveControl]:
    """Unmount the file system, and mount it again with whatever the drive holds then."""
    # The loop device would clear itself with its last user.
    device = os.open(drive.loop, os.O_RDWR | os.O_CLOEXEC)
    try:
        if drive.mounted.is_on_top():
            done = subprocess.run(["umount", drive.mount_point], capture_output=True, text=True)
            if done.returncode:
                raise LabError(f"{done.stderr.strip()}; end what uses it, then this works")
        try:
            _wait_until_unused(drive)
            with contextlib.closing(control(drive)) as connection:
                yield connection
        finally:
            fcntl.ioctl(device, _BLKFLSBUF, 0)
            drive.mounted.mount()
    finally:
        os.close(device)


def snapshot(drive: HandDrive) -> None:
    """Keep the present content for restore."""
    with _unmounted(drive) as connection:
        connection.ask_idle("snapshot")


def restore(drive: HandDrive) -> None:
    """Bring the content of the snapshot back."""
    with contextlib.closing(control(drive)) as connection:
        if not connection.ask("state")["snapshot"]:
            raise LabError(f"{drive.mount_point}: there is no snapshot to restore")
    with _unmounted(drive) as connection:
        connection.ask_idle("restore")


def power_on(drive: HandDrive) -> None:
    """Switch the power on again; the file system is mounted anew and replays its journal."""
    with _unmounted(drive) as connection:
        connection.ask("power on")


def power_off(drive: HandDrive, plan: str, patience: float) -> dict[str, object]:
    """Cut the power as planned in the words of drive/README.md; return what it took.

    Waits so many seconds for a cut that is planned for later; past that, LabError.
    """
    with contextlib.closing(control(drive)) as connection:
        if connection.ask("state")["power"] == "off":
            raise LabError(f"{drive.mount_point}: the power is off already; scripts/drive power-on")
        connection.ask(f"power off {plan}".rstrip())
        deadline = time.monotonic() + patience
        while connection.ask("state")["power"] == "on":
            if time.monotonic() > deadline:
                raise LabError(f"the power is still on after {patience:g} s; the cut stays planned")
            time.sleep(0.01)
        return connection.ask("cut")


def down(drive: HandDrive) -> None:
    """Unmount the drive and end it; its content is gone."""
    with contextlib.closing(control(drive)) as connection:
        connection.ask("errors off")
        connection.ask("timing off")
    held = drive.mounted.loop
    if held.holds():  # as long as the device is certainly the drive's
        held.put_settings_back()
    try:
        drive.mounted.unmount(patience=1)
    except MachineError as error:
        raise LabError(f"{error}; end what uses it, then this works") from None
    deadline = time.monotonic() + 10
    refused: dict[int, str] = {}
    while held.holds() and time.monotonic() < deadline:
        refused = mountcopies.unmount(drive.mounted)
        time.sleep(0.02)
    if refused and held.holds():
        holder, reason = next(iter(refused.items()))
        say(f"{reason}, as process {holder} sees it: {drive.loop} stays until that has ended")
    if (server := drive.server.find()) is not None:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(psutil.TimeoutExpired):
            server.wait(10)
    ledger.clear_dead()
