"""What the test bed needs of a drive, simulated or real."""

import abc
from pathlib import Path

import msgspec

from wallab.errors import MachineError
from wallab.record.number import Counter
from wallab.record.writecache import WriteCache


class DriveReading(msgspec.Struct, frozen=True):
    """What a drive counted, by the names of drive/README.md; times in ns, by the drive's clock."""

    counters: dict[str, Counter]
    lateness: dict[str, Counter]
    """How late answers were delivered, in real time: count, p50_ns, p99_ns, max_ns.

    Empty for a drive that is not simulated.
    """


class Drive(abc.ABC):
    """A place for files, whose content can be put back and whose write cache is known.

    `mount_point` is where files are, between mount and unmount.
    """

    name: str
    mount_point: Path
    profile: str = ""
    """Of a simulated drive."""
    mount_options: tuple[str, ...] = ()
    """What the next mount is done with."""

    @abc.abstractmethod
    def unavailable(self, state: WriteCache) -> str:
        """Say why the write cache cannot have this state; nothing if it can."""

    @abc.abstractmethod
    def set_write_cache(self, state: WriteCache) -> None:
        """Switch the write cache, and tell the kernel what it needs to know of it.

        Both are read back; MachineError if one did not take.
        """

    @abc.abstractmethod
    def write_cache(self) -> dict[str, str]:
        """Read back what set_write_cache set: the drive's cache, and the kernel's belief."""

    def set_read_ahead(self, sectors: int | None) -> None:
        """Read ahead so far, or as the kernel would by itself; counts for files opened later.

        MachineError where the lab does not own the device.
        """
        if sectors is not None:
            raise MachineError(f"drive {self.name}: its read-ahead is not the lab's to set")

    def read_ahead(self) -> int | None:
        """Read back how far the kernel reads ahead, in sectors; None where that is unknown."""
        return None

    def cache_bytes(self) -> int | None:
        """Return how much the write cache can hold; None where that is unknown."""
        return None

    @abc.abstractmethod
    def timing(self, on: bool) -> None:
        """Switch between a drive that takes its time and one that takes none, if it can."""

    @abc.abstractmethod
    def mount(self) -> None:
        """Make the files accessible, to the user that servers run as."""

    @abc.abstractmethod
    def unmount(self) -> None:
        """End what mount began."""

    @abc.abstractmethod
    def snapshot(self) -> None:
        """Keep the present content, of an unmounted drive, for restore."""

    @abc.abstractmethod
    def restore(self) -> None:
        """Bring the kept content back; the drive must be unmounted."""

    @abc.abstractmethod
    def forget(self) -> None:
        """Let go of what is kept beside the snapshot, if that costs memory; of an unmounted drive.

        Only restore may follow.
        """

    @abc.abstractmethod
    def reset(self) -> None:
        """Count from zero."""

    @abc.abstractmethod
    def reading(self) -> DriveReading:
        """Return what was counted since the last reset."""

    @abc.abstractmethod
    def close(self) -> None:
        """Undo everything; safe to call twice."""
