"""Loop devices that clear themselves when their last user is gone.

See linux/loop.h. losetup cannot set the autoclear flag, which makes a device vanish even if
the lab is killed.
"""

import contextlib
import fcntl
import os
import struct
import time
from pathlib import Path

from wallab.errors import MachineError
from wallab.machine.owned import Owned

_BLKFLSBUF = 0x1261
_LOOP_CLR_FD = 0x4C01
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
_AUTOCLEAR = 4
_DIRECT_IO = 16

PATIENCE = 10.0
"""Seconds that the last users of a device have to go."""

SECTOR = 512
"""Bytes; the logical block size that the devices show, as drives of 2005 had it."""


def name_of(device: Path) -> str:
    """Return the name that whoever attached the loop device gave it; nothing if nobody did.

    Its first 63 bytes; the kernel hides paths from other mount namespaces, and not names.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = bytearray(232)
            fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, status)
            return status[56:120].split(b"\0", 1)[0].decode(errors="replace")
        finally:
            os.close(descriptor)
    return ""


class Queue:
    """The settings of a block device's queue in sysfs, read back after they are set."""

    def __init__(self, device: Path) -> None:
        self.folder = Path("/sys/block") / device.name / "queue"

    @property
    def cache_mode(self) -> str:
        """What the kernel believes: “write back” (it sends flushes) or “write through”."""
        return (self.folder / "write_cache").read_text().strip()

    @cache_mode.setter
    def cache_mode(self, mode: str) -> None:
        self._set("write_cache", mode)

    @property
    def read_ahead(self) -> int:
        """How far the kernel reads ahead on the device, in sectors."""
        return int((self.folder / "read_ahead_kb").read_text()) * 1024 // SECTOR

    @read_ahead.setter
    def read_ahead(self, sectors: int) -> None:
        self._set("read_ahead_kb", str(sectors * SECTOR // 1024))

    def _set(self, name: str, value: str) -> None:
        file = self.folder / name
        try:
            file.write_text(value)
            after = file.read_text().strip()
        except OSError as error:
            raise MachineError(f"{file}: “{value}”: {error.strerror}") from None
        if after != value:
            raise MachineError(f"{file} stays “{after}”, not “{value}”")


class Attached(Owned, frozen=True):
    """A file behind a loop device, and the settings that the device had before.

    The device's number may be another's by the time that this is undone.
    """

    device: Path
    name: str
    """What it was attached as, see name_of."""
    sequence: int
    """The kernel's number of this attachment; 0 where it counts none (before Linux 5.15)."""
    cache_mode: str
    read_ahead: int
    """Sectors."""

    @classmethod
    def note(cls, device: Path) -> "Attached":
        """Note what is attached there now, and the settings that the device has now."""
        queue = Queue(device)
        return cls(device, name_of(device), _sequence(device), queue.cache_mode, queue.read_ahead)

    def holds(self) -> bool:
        """Whether the device still holds this file."""
        if not _is_attached(self.device):
            return False
        if self.sequence:
            return _sequence(self.device) == self.sequence
        return name_of(self.device) == self.name

    def put_settings_back(self) -> bool:
        """Set the device's queue as it was before; return whether there was anything to do.

        MachineError if that fails.
        """
        queue = Queue(self.device)
        changed = False
        # In this order: the kernel forgets its read-ahead when told of the cache.
        if queue.cache_mode != self.cache_mode:
            queue.cache_mode = self.cache_mode
            changed = True
        if queue.read_ahead != self.read_ahead:
            queue.read_ahead = self.read_ahead
            changed = True
        return changed

    def undo(self) -> str:
        """Put the settings back, and give the device back if it still holds the file."""
        try:
            return self.release(os.open(self.device, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            return ""  # the device itself is gone, with its settings
        except OSError as error:
            raise MachineError(f"{self.device}: {error.strerror}") from None

    def release(self, descriptor: int) -> str:
        """Undo it through a descriptor of the device, which is closed."""
        try:
            ours = self.holds()
            if not ours and _is_attached(self.device):
                return self._leave_to_another()
            # The kernel keeps the settings for the next user of the device.
            done = [f"put the settings of {self.device} back"] if self.put_settings_back() else []
            if ours:
                with contextlib.suppress(OSError):
                    fcntl.ioctl(descriptor, _LOOP_CLR_FD)
                done.append(f"gave {self.device} back")
        finally:
            os.close(descriptor)
        deadline = time.monotonic() + PATIENCE
        while ours and self.holds():
            if time.monotonic() > deadline:
                raise MachineError(
                    f"{self.device} is in use: end what uses it, in containers, too, then run "
                    "scripts/drive restore"
                )
            time.sleep(0.01)
        return "; ".join(done)

    def _leave_to_another(self) -> str:
        queue = Queue(self.device)
        if (queue.cache_mode, queue.read_ahead) == (self.cache_mode, self.read_ahead):
            return ""
        raise MachineError(
            f"{self.device} is another's by now, with settings of the lab's: it had “"
            f"{self.cache_mode}”, read-ahead {self.read_ahead}; run scripts/drive restore when it "
            "is free"
        )


def _sequence(device: Path) -> int:
    """Return the number of what is attached there, which nothing else gets until a reboot."""
    try:
        return int((Path("/sys/block") / device.name / "diskseq").read_text())
    except OSError:
        return 0


def _is_attached(device: Path) -> bool:
    return (Path("/sys/block") / device.name / "loop" / "backing_file").exists()


class LoopDevice:
    """A block device over a file, open as long as this object is."""

    def __init__(self, file: Path) -> None:
        """Attach a free loop device to the file with direct I/O.

        MachineError where there is none to be had.
        """
        try:
            backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise MachineError(f"{file}: {error.strerror}") from None
        try:
            self.path, self._fd = self._attach(backing, str(file))
        finally:
            os.close(backing)
        self.queue = Queue(self.path)
        self.attached = Attached.note(self.path)
        """What is to be undone."""

    @staticmethod
    def _attach(backing: int, name: str) -> tuple[Path, int]:
        info = struct.pack(
            "<5Q4I64s64s32s2Q",
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            _AUTOCLEAR | _DIRECT_IO,
            name.encode()[:63],
            b"",
            b"",
            0,
            0,
        )
        config = struct.pack("<2I232s64s", backing, SECTOR, info, b"")
        for _ in range(20):
            path = Path("/dev/loop-control")
            try:
                control = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    path = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
                finally:
                    os.close(control)
                device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise MachineError(
                    f"no loop device for the simulated drive ({path}: {error.strerror}); it takes "
                    "root and, in a container, --device /dev/loop-control and --device /dev/loop0 "
                    "… of the host's free ones"
                ) from None
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, config)
            except OSError:
                # Another process took it between the two calls.
                os.close(device)
                time.sleep(0.05)
                continue
            return path, device
        raise MachineError("every loop device that was free was taken by others; try again")

    @property
    def cache_mode(self) -> str:
        """What the kernel believes: “write back” (it sends flushes) or “write through”."""
        return self.queue.cache_mode

    @property
    def read_ahead(self) -> int:
        """How far the kernel reads ahead on the device, in sectors."""
        return self.queue.read_ahead

    @read_ahead.setter
    def read_ahead(self, sectors: int) -> None:
        self.queue.read_ahead = sectors

    def restore_read_ahead(self) -> None:
        """Read ahead as the kernel did when the device was attached."""
        if self.read_ahead != self.attached.read_ahead:
            self.read_ahead = self.attached.read_ahead

    def forget(self) -> None:
        """Write back and drop what the kernel keeps of the device's content in memory."""
        fcntl.ioctl(self._fd, _BLKFLSBUF, 0)

    def let_go(self) -> None:
        """Leave the device to its file system: it is cleared when that is unmounted."""
        os.close(self._fd)

    def detach(self) -> None:
        """Give the device back and wait until it is free; its settings go back first.

        MachineError where that takes too long, or fails.
        """
        self.attached.release(self._fd)
