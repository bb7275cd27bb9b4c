"""What a running lab owns on this machine, written down so that the next start can clear it.

Mounts and loop devices vanish with the lab's processes; this is for the rest: processes that a
kill orphaned, settings of loop devices, and folders.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import psutil

from wallab import jsonfile, mounts, paths
from wallab.errors import MachineError


class Process(msgspec.Struct, frozen=True):
    """A process, told from a later one of the same number by its start."""

    pid: int
    started: float

    def find(self) -> psutil.Process | None:
        """Return the process if it still runs."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started) < 1 and (
                process.status() != psutil.STATUS_ZOMBIE
            ):
                return process
        return None


class Record(msgspec.Struct):
    """What one run of the lab owns."""

    owner: Process
    folder: Path
    processes: list[Process] = msgspec.field(default_factory=list)
    loops: list[str] = msgspec.field(default_factory=list)
    read_ahead: dict[str, str] = msgspec.field(default_factory=dict)
    """Loop device -> the read_ahead_kb that it had before."""


def identify(pid: int) -> Process:
    """Return the running process of that number."""
    return Process(pid, psutil.Process(pid).create_time())


class Ledger:
    """The record of one owner, and the folder that goes with it."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self._record = record

    @classmethod
    def open(cls, name: str | None = None, owner: int | None = None) -> "Ledger":
        """Make a folder below the runtime folder, owned by the process (this one by default)."""
        pid = os.getpid() if owner is None else owner
        folder = paths.runtime() / (name or f"{pid}")
        try:
            paths.runtime().mkdir(mode=0o755, parents=True, exist_ok=True)
            folder.mkdir(mode=0o755)
        except FileExistsError:
            raise MachineError(f"{folder} is there already; is it in use?") from None
        except OSError as error:
            raise MachineError(f"{folder}: {error.strerror}") from None
        ledger = cls(folder, Record(identify(pid), folder))
        ledger._save()
        return ledger

    def _save(self) -> None:
        jsonfile.save(_file(self.folder), self._record)

    def add_process(self, pid: int) -> None:
        """Note a process that must not outlive the owner."""
        self._record.processes.append(identify(pid))
        self._save()

    def add_loop(self, device: Path) -> None:
        """Note a loop device whose settings must go back."""
        self._record.loops.append(str(device))
        with contextlib.suppress(OSError):
            self._record.read_ahead[str(device)] = _read_ahead(device).read_text().strip()
        self._save()

    def hand_over(self, owner: int) -> None:
        """Make another process the owner, so that this one may end."""
        self._record.owner = identify(owner)
        self._save()

    def close(self) -> None:
        """Remove the folder and the record."""
        _remove(self._record)


def _read_ahead(device: Path) -> Path:
    return Path("/sys/block") / device.name / "queue" / "read_ahead_kb"


def _file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def _remove(record: Record) -> None:
    if mounts.below(record.folder):
        return  # never delete through a mount what is only shown here
    shutil.rmtree(record.folder, ignore_errors=True)
    if not record.folder.exists():  # else the next start tries again
        _file(record.folder).unlink(missing_ok=True)


def clear_dead() -> list[str]:
    """Undo what dead owners left behind; return what was done, a line each."""
    done: list[str] = []
    for file in sorted(paths.runtime().glob("*.json")):
        try:
            record = jsonfile.load(file, Record)
        except (OSError, msgspec.MsgspecError):
            continue
        if record.owner.find() is None:
            done += _clear(record)
    return done


def _clear(record: Record) -> list[str]:
    """Undo what the record names."""
    done: list[str] = []
    for process in record.processes:
        if (found := process.find()) is not None:
            done.append(f"ended process {found.pid} ({found.name()})")
            with contextlib.suppress(psutil.Error):
                # A postmaster ends its children on SIGQUIT; what is deaf to it is killed.
                found.send_signal(signal.SIGQUIT)
                try:
                    found.wait(5)
                except psutil.TimeoutExpired:
                    found.kill()
                    found.wait(5)
    for point in mounts.below(record.folder):
        done.append(f"unmounted {point}")
        subprocess.run(["umount", "--lazy", str(point)], capture_output=True)
    for device in record.loops:
        block = Path("/sys/block") / Path(device).name
        backing = block / "loop" / "backing_file"
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and _backed_below(backing, record.folder):
            subprocess.run(["losetup", "-d", device], capture_output=True)
            time.sleep(0.1)
        with contextlib.suppress(OSError):
            if not backing.exists():
                (block / "queue" / "write_cache").write_text("write back")
                if before := record.read_ahead.get(device):
                    _read_ahead(Path(device)).write_text(before)
        done.append(f"reset {device}")
    _remove(record)
    done.append(f"removed {record.folder}")
    return done


def _backed_below(backing: Path, folder: Path) -> bool:
    try:
        return backing.read_text().startswith(f"{folder}/")
    except OSError:
        return False
