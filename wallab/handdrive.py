"""A simulated drive that stays after the command that put it up: scripts/drive."""

import contextlib
import hashlib
import signal
import time
from pathlib import Path

import msgspec
import psutil

from wallab import jsonfile, ledger, mounts, paths
from wallab.drivecontrol import DriveControl
from wallab.errors import LabError, MachineError
from wallab.ledger import Ledger
from wallab.simulated import SimulatedDrive
from wallab.writecache import WriteCache


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


def down(drive: HandDrive) -> None:
    """Unmount the drive and end it; its content is gone."""
    with contextlib.closing(control(drive)) as connection:
        connection.ask("timing off")
    queue = Path("/sys/block") / Path(drive.loop).name / "queue" / "write_cache"
    with contextlib.suppress(OSError):
        queue.write_text("write back")
    try:
        mounts.unmount(drive.mount_point, patience=1)
    except MachineError as error:
        raise LabError(f"{error}; end what uses it, then this works") from None
    backing = queue.parent.parent / "loop" / "backing_file"
    deadline = time.monotonic() + 10
    while backing.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    if (server := drive.server.find()) is not None:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(psutil.TimeoutExpired):
            server.wait(10)
    ledger.clear_dead()
