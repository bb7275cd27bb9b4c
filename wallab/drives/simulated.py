"""A simulated drive with a file system on it: server, loop device, mount.

The server (drive/) offers the drive as one file through FUSE; a loop device over it carries the
file system. All of it is undone by `close`, and by the kernel if the lab is killed.
"""

import contextlib
import secrets
import select
import signal
import subprocess
from pathlib import Path

from wallab.drives.control import DriveControl
from wallab.drives.drive import Drive
from wallab.errors import LabError, MachineError
from wallab.machine import process, provision
from wallab.machine.ledger import Ledger
from wallab.machine.loop import LoopDevice, Queue
from wallab.machine.mounts import Mounted, MountsBelow
from wallab.record.driveprofile import profile
from wallab.record.drivereading import DriveReading
from wallab.record.writecache import SIMULATED, WriteCache, as_read_back

FILE_SYSTEMS = {
    # -K: no discards, which would take the simulated drive's time for nothing.
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
}


def switch(control: DriveControl, queue: Queue, state: WriteCache) -> dict[str, str]:
    """Switch a drive's cache, and tell the kernel what it needs to know of it.

    Returns what both read back as; MachineError if one did not take. Takes effect on a mounted
    file system too.
    """
    wanted = as_read_back(state)
    control.ask(f"write-cache {wanted['drive']}")
    queue.cache_mode = wanted["kernel"]
    if (states := read_back(control, queue)) != wanted:
        raise MachineError(f"the simulated drive's write cache stays {states}, not {wanted}")
    return states


def read_back(control: DriveControl, queue: Queue) -> dict[str, str]:
    """Read back what `switch` set: the drive's cache, and the kernel's belief."""
    return {"drive": str(control.ask("state")["write_cache"]), "kernel": queue.cache_mode}


class SimulatedDrive(Drive):
    """A running simulated drive, its loop device and, between mount and unmount, its files.

    `folder` holds the control socket and the FUSE mount; `mount_point` is where files are.
    """

    def __init__(
        self,
        name: str,
        profile_name: str,
        size: int,
        filesystem: str,
        ledger: Ledger,
        *,
        elevator: str | None = None,
        mkfs: tuple[str, ...] = (),
        mount_point: Path | None = None,
        die_with_lab: bool = True,
    ) -> None:
        """Start the drive, empty, with timing off and the write cache off. Size in bytes.

        `elevator` is the host's, if not the profile's. `mkfs` are further arguments of mkfs.
        """
        if filesystem not in FILE_SYSTEMS:
            raise LabError(f"no file system “{filesystem}”; there are {', '.join(FILE_SYSTEMS)}")
        self.name = name
        self.profile = profile_name
        self.size = size
        self.filesystem = filesystem
        self._ledger = ledger
        self._undo = contextlib.ExitStack()
        # Another lab, in another container, may have a ledger of this name, and see the devices.
        self.folder = ledger.folder / f"drive-{name}-{secrets.token_hex(4)}"
        self.mount_point = mount_point or ledger.folder / name
        fuse = self.folder / "fuse"
        try:
            fuse.mkdir(parents=True)
            self.mount_point.mkdir(exist_ok=True)
            self.server = self._serve(fuse, profile(profile_name, elevator), die_with_lab)
            self.control = DriveControl(self.socket)
            self._undo.callback(self.control.close)
            self.loop = LoopDevice(fuse / "disk")
            self._undo.callback(self._detach)
            ledger.add(self.loop.attached)
            self.mounted = Mounted(self.mount_point, filesystem, self.loop.attached)
            self._undo.callback(self.unmount)
            if mount_point:
                ledger.add(self.mounted)
            self.set_write_cache("off")
            self._make_filesystem(mkfs)
        except BaseException:
            self.close()
            raise

    @property
    def socket(self) -> Path:
        """The drive's control socket."""
        return self.folder / "control"

    def _serve(
        self, fuse: Path, parameters: dict[str, str], die_with_lab: bool
    ) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [
            provision.drive_program(),
            "--mount",
            fuse,
            "--control",
            self.socket,
            "--size",
            str(self.size),
            "--write-cache",
            "off",
            "--timing",
            "off",
        ]
        for key, value in parameters.items():
            command += ["--set", f"{key}={value}"]
        log = self.folder / "log"
        with log.open("wb") as errors:
            server = process.spawn(
                command, stdout=subprocess.PIPE, stderr=errors, die_with_parent=die_with_lab
            )
        # The server unmounts its file where it lives; the lab may see it elsewhere, too.
        self._undo.callback(MountsBelow(fuse).undo)
        self._undo.callback(process.end, server, signal.SIGTERM, 10)
        self._ledger.add_process(server.pid)
        assert server.stdout is not None
        self._undo.callback(server.stdout.close)
        ready, _, _ = select.select([server.stdout], [], [], 30)
        if not ready or server.stdout.readline() != b"ready\n":
            words = log.read_text(errors="replace").strip()
            code = server.poll()
            message = f"the simulated drive did not start: {words or 'it said nothing for 30 s'}"
            raise LabError(message) if code == LabError.exit_code else MachineError(message)
        return server

    def _make_filesystem(self, further: tuple[str, ...]) -> None:
        command = [*FILE_SYSTEMS[self.filesystem], *further, str(self.loop.path)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise MachineError(f"{' '.join(command)}: {result.stderr.strip()}")

    def unavailable(self, state: WriteCache) -> str:
        """Say why the write cache cannot have this state; nothing if it can."""
        return "" if state in SIMULATED else "a simulated drive has a write cache of its own"

    def set_write_cache(self, state: WriteCache) -> None:
        """Switch the drive's cache and the kernel's belief, mounted or not; see `switch`."""
        switch(self.control, self.loop.queue, state)

    def write_cache(self) -> dict[str, str]:
        """Read back what set_write_cache set: the drive's cache, and the kernel's belief."""
        return read_back(self.control, self.loop.queue)

    def set_read_ahead(self, sectors: int | None) -> None:
        """Read ahead so far, or as the kernel does by itself; counts for files opened later."""
        if sectors is None:
            self.loop.restore_read_ahead()
        else:
            self.loop.read_ahead = sectors

    def read_ahead(self) -> int | None:
        """Read back how far the kernel reads ahead, in sectors."""
        return self.loop.read_ahead

    def cache_bytes(self) -> int | None:
        """Return how much the write cache can hold."""
        return int(self.control.ask("state")["parameters"]["cache_bytes"])

    def timing(self, on: bool) -> None:
        """Switch between a drive that takes its time and one that takes none."""
        self.control.ask(f"timing {'on' if on else 'off'}")

    def mount(self) -> None:
        """Mount the file system; its root belongs to the user that servers run as."""
        self.mounted.mount(",".join(self.mount_options))
        process.own(self.mount_point)

    def unmount(self) -> None:
        """Unmount the file system."""
        self.mounted.unmount()

    def snapshot(self) -> None:
        """Keep the present content, of an unmounted file system, for restore."""
        self.loop.forget()
        self.control.ask_idle("snapshot")

    def restore(self) -> None:
        """Bring the kept content back; the file system must be unmounted."""
        self.loop.forget()
        self.control.ask_idle("restore")

    def forget(self) -> None:
        """Give the memory back that the drive's content takes beyond the snapshot."""
        self.restore()

    def reset(self) -> None:
        """Count from zero."""
        self.control.ask("reset")

    def reading(self) -> DriveReading:
        """Return what was counted since the last reset."""
        return self.control.reading()

    def _detach(self) -> None:
        with self._ledger.undoing(self.loop.attached):
            self.loop.detach()

    def leave_running(self) -> None:
        """Let go of a mounted drive without undoing anything."""
        self.control.close()
        self.loop.let_go()
        self._undo.pop_all()

    def close(self) -> None:
        """Undo everything; safe to call twice."""
        with contextlib.suppress(MachineError, LabError, AttributeError):
            self.timing(False)
        self._undo.close()
