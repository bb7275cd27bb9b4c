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

from wallab import paths
from wallab.drives.control import DriveControl
from wallab.drives.simulated import SimulatedDrive
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.machine import ledger, loop, mounts
from wallab.machine.ledger import Ledger
from wallab.progress import say
from wallab.record import driveprofile
from wallab.record.writecache import WriteCache, as_read_back

_BLKFLSBUF = 0x1261  # linux/fs.h


class HandDrive(msgspec.Struct, frozen=True):
    """What is known of a drive that was put up by hand."""

    mount_point: Path
    profile: str
    filesystem: str
    size: int
    loop: str
    server: ledger.Process
    control: Path
    folder: Path


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
            found = HandDrive(
                mount_point=mount_point,
                profile=profile,
                filesystem=filesystem,
                size=size,
                loop=str(drive.loop.path),
                server=ledger.identify(drive.server.pid),
                control=drive.socket,
                folder=owned.folder,
            )
            jsonfile.save(owned.folder / "drive.json", found)
            owned.hand_over(drive.server.pid)
        except BaseException:
            drive.close()
            raise
        drive.leave_running()
    except BaseException:
        owned.close()
        raise
    return found


def every() -> list[HandDrive]:
    """Return the drives that are up."""
    found = []
    for file in sorted(paths.runtime().glob("drive-*/drive.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            drive = jsonfile.load(file, HandDrive)
            if drive.server.find() is not None:
                found.append(drive)
    return found


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


def _kernel_mode(drive: HandDrive) -> Path:
    return Path("/sys/block") / Path(drive.loop).name / "queue" / "write_cache"


def set_write_cache(drive: HandDrive, state: WriteCache) -> dict[str, str]:
    """Switch the drive's cache and tell the kernel; return what both read back as."""
    wanted = as_read_back(state)
    with contextlib.closing(control(drive)) as connection:
        connection.ask(f"write-cache {wanted['drive']}")
        try:
            _kernel_mode(drive).write_text(wanted["kernel"])
            kernel = _kernel_mode(drive).read_text().strip()
        except OSError as error:
            raise MachineError(f"{_kernel_mode(drive)}: {error.strerror}") from None
        found = {"drive": str(connection.ask("state")["write_cache"]), "kernel": kernel}
    if found != wanted:
        raise MachineError(f"the write cache stays {found}, not {wanted}")
    return found


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
        done = subprocess.run(["umount", drive.mount_point], capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"{done.stderr.strip()}; end what uses it, then this works")
        try:
            _wait_until_unused(drive)
            with contextlib.closing(control(drive)) as connection:
                yield connection
        finally:
            fcntl.ioctl(device, _BLKFLSBUF, 0)
            mounts.mount(Path(drive.loop), drive.mount_point, drive.filesystem)
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


def _is_held(drive: HandDrive) -> bool:
    """Whether the loop device is still attached to the drive."""
    return loop.name_of(Path(drive.loop)).startswith(f"{drive.folder}/")


def down(drive: HandDrive) -> None:
    """Unmount the drive and end it; its content is gone."""
    with contextlib.closing(control(drive)) as connection:
        connection.ask("errors off")
        connection.ask("timing off")
    queue = _kernel_mode(drive)
    with contextlib.suppress(OSError):
        queue.write_text("write back")
    try:
        mounts.unmount(drive.mount_point, patience=1)
    except MachineError as error:
        raise LabError(f"{error}; end what uses it, then this works") from None
    deadline = time.monotonic() + 10
    refused: dict[int, str] = {}
    while (held := _is_held(drive)) and time.monotonic() < deadline:
        refused = mounts.unmount_copies(drive.loop)
        time.sleep(0.02)
    if held and refused:
        holder, said = next(iter(refused.items()))
        say(f"{said}, as process {holder} sees it: {drive.loop} stays until that has ended")
    if (server := drive.server.find()) is not None:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(psutil.TimeoutExpired):
            server.wait(10)
    ledger.clear_dead()
