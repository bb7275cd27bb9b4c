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

_BLKFLSBUF = 0x1261
_LOOP_CLR_FD = 0x4C01
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
_AUTOCLEAR = 4
_DIRECT_IO = 16

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
        self._read_ahead_before = self.read_ahead

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
    def queue(self) -> Path:
        """The folder of the device's queue settings in sysfs."""
        return Path("/sys/block") / self.path.name / "queue"

    @property
    def cache_mode(self) -> str:
        """What the kernel believes: “write back” (it sends flushes) or “write through”."""
        return (self.queue / "write_cache").read_text().strip()

    @cache_mode.setter
    def cache_mode(self, mode: str) -> None:
        try:
            (self.queue / "write_cache").write_text(mode)
        except OSError as error:
            raise MachineError(f"{self.queue}/write_cache: “{mode}”: {error.strerror}") from None
        if self.cache_mode != mode:
            raise MachineError(f"{self.queue}/write_cache stays “{self.cache_mode}”, not “{mode}”")

    @property
    def read_ahead(self) -> int:
        """How far the kernel reads ahead on the device, in sectors."""
        return int((self.queue / "read_ahead_kb").read_text()) * 1024 // SECTOR

    @read_ahead.setter
    def read_ahead(self, sectors: int) -> None:
        file = self.queue / "read_ahead_kb"
        try:
            file.write_text(str(sectors * SECTOR // 1024))
        except OSError as error:
            raise MachineError(f"{file}: {sectors} sectors: {error.strerror}") from None
        if self.read_ahead != sectors:
            raise MachineError(f"{file} stays at {self.read_ahead} sectors, not {sectors}")

    def restore_read_ahead(self) -> None:
        """Read ahead as the kernel did when the device was attached."""
        if self.read_ahead != self._read_ahead_before:
            self.read_ahead = self._read_ahead_before

    def forget(self) -> None:
        """Write back and drop what the kernel keeps of the device's content in memory."""
        fcntl.ioctl(self._fd, _BLKFLSBUF, 0)

    def let_go(self) -> None:
        """Leave the device to its file system: it is cleared when that is unmounted."""
        os.close(self._fd)

    def detach(self) -> None:
        """Give the device back and wait until it is free; its settings go back first."""
        # The kernel keeps the setting for the next user of the device.
        with contextlib.suppress(MachineError):
            self.cache_mode = "write back"
        with contextlib.suppress(MachineError):
            self.restore_read_ahead()
        name = name_of(self.path)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._fd, _LOOP_CLR_FD)
        os.close(self._fd)
        # Somebody else may have it already.
        deadline = time.monotonic() + 10
        while name and name_of(self.path) == name and time.monotonic() < deadline:
            time.sleep(0.01)
