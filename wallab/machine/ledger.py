"""What a running lab owns on this machine, written down so that the next start can clear it.

Mounts and loop devices vanish with the lab's processes; this is for the rest: processes that a
kill orphaned, settings of loop devices and of real disks, and folders. What a reboot does not undo
is kept where it survives one, too (paths.state).
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from wallab import paths
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.machine import cacheswitch, loop, memorygroup, mounts
from wallab.machine.cacheswitch import CacheState
from wallab.progress import say


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
    groups: list[Path] = msgspec.field(default_factory=list)
    """Control groups."""
    read_ahead: dict[str, str] = msgspec.field(default_factory=dict)
    """Loop device -> the read_ahead_kb that it had before."""
    mounts: list[Path] = msgspec.field(default_factory=list)
    """Elsewhere; ours if a loop device of ours is mounted there."""
    folders: list[Path] = msgspec.field(default_factory=list)
    """Elsewhere, with all that is in them, and with the processes whose programs are."""
    caches: list[CacheState] = msgspec.field(default_factory=list)
    """Real disks, as they were before."""


def identify(pid: int) -> Process:
    """Return the running process of that number."""
    return Process(pid, psutil.Process(pid).create_time())


class Ledger:
    """The record of one owner, and the folder that goes with it."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self._record = record

    @classmethod
    def open(
        cls, name: str | None = None, owner: int | None = None, *, lasting: bool = False
    ) -> "Ledger":
        """Make a folder below the runtime folder, owned by the process (this one by default).

        A lasting one survives a reboot.
        """
        pid = os.getpid() if owner is None else owner
        home = paths.state() if lasting else paths.runtime()
        # What an earlier boot left may have the same number.
        folder = home / (name or (f"{pid}-{secrets.token_hex(4)}" if lasting else f"{pid}"))
        record = Record(identify(pid), folder)
        try:
            home.mkdir(mode=0o755, parents=True, exist_ok=True)
            # The record comes first and goes last, so that a kill leaves no folder without one.
            jsonfile.create(_file(folder), record)
            folder.mkdir(mode=0o755)
        except FileExistsError:
            raise MachineError(f"{folder} is there already; is it in use?") from None
        except OSError as error:
            raise MachineError(f"{folder}: {error.strerror}") from None
        return cls(folder, record)

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

    def add_mount(self, point: Path) -> None:
        """Note a mount point elsewhere; before anything is mounted there."""
        self._record.mounts.append(point)
        self._save()

    def add_folder(self, folder: Path) -> None:
        """Note a folder that goes with everything in it; before it is made."""
        self._record.folders.append(folder)
        self._save()

    def add_cache(self, before: CacheState) -> None:
        """Note the settings that a disk must get back, before they are changed.

        MachineError if another run that lives has noted the same disk.
        """
        if any(one.identity == before.identity for one in self._record.caches):
            return
        self._refuse_shared(before)
        self._record.caches.append(before)
        self._save()
        try:
            self._refuse_shared(before)  # two may have looked at the same time
        except MachineError:
            self._record.caches.remove(before)
            self._save()
            raise

    def _refuse_shared(self, before: CacheState) -> None:
        for file, record in _records():
            same = any(one.identity == before.identity for one in record.caches)
            if same and file != _file(self.folder) and record.owner.find() is not None:
                raise MachineError(
                    f"{before.name} is in use by another run (process {record.owner.pid}); "
                    "wait for its end"
                )

    def add_group(self, path: Path) -> None:
        """Note a control group that must not outlive the owner's processes."""
        self._record.groups.append(path)
        self._save()

    def hand_over(self, owner: int) -> None:
        """Make another process the owner, so that this one may end."""
        self._record.owner = identify(owner)
        self._save()

    def close(self) -> None:
        """Put back what was changed, and remove the folders and the record."""
        for line in _put_back(self._record, self._save):
            say(line)
        _remove(self._record)


def _read_ahead(device: Path) -> Path:
    return Path("/sys/block") / device.name / "queue" / "read_ahead_kb"


def _file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def _remove(record: Record) -> None:
    if mounts.below(record.folder):
        return  # never delete through a mount what is only shown here
    if record.caches or record.folders or any(group.exists() for group in record.groups):
        return  # still to be undone
    shutil.rmtree(record.folder, ignore_errors=True)
    if not record.folder.exists():  # else the next start tries again
        _file(record.folder).unlink(missing_ok=True)


def clear_dead() -> list[str]:
    """Undo what dead owners left behind; return what was done, a line each."""
    for home in (paths.runtime(), paths.state()):
        jsonfile.clear_partial(home)
    return [
        line
        for file, record in _records()
        if record.owner.find() is None
        for line in _clear(file, record)
    ]


def dead() -> list[Path]:
    """Return the records whose owners are dead."""
    return [file for file, record in _records() if record.owner.find() is None]


def _records() -> list[tuple[Path, Record]]:
    """Return all records; processes before what they use."""
    found: list[tuple[Path, Record]] = []
    for home in (paths.runtime(), paths.state()):
        for file in sorted(home.glob("*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found.append((file, jsonfile.load(file, Record)))
    return found


def _end_below(folder: Path) -> list[str]:
    """Kill the processes whose programs lie below the folder; return a line about each."""
    done = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # A program that was deleted has a remark behind its path.
            if process.exe().startswith(f"{folder}/"):
                done.append(f"ended process {process.pid} ({process.name()})")
                process.kill()
                process.wait(5)
    return done


def _put_back(record: Record, save: Callable[[], None]) -> list[str]:
    """Undo what is outside of the lab's own folders; return what was done, a line each.

    What could not be undone stays in the record.
    """
    done: list[str] = []
    for before in list(record.caches):
        try:
            if line := cacheswitch.put_back(before):
                done.append(line)
        except MachineError as error:
            done.append(str(error))
            continue
        record.caches.remove(before)
        save()
    for folder in list(record.folders):
        if mounts.below(folder):
            done.append(f"{folder} stays, for something is mounted there")
            continue
        done += _end_below(folder)
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            done.append(f"{folder} could not be removed")
            continue
        record.folders.remove(folder)
        save()
    return done


def _clear(file: Path, record: Record) -> list[str]:
    """Undo what the record names."""
    done: list[str] = []
    for process in [*record.processes, *_drive_servers(record.folder)]:
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
    for group in record.groups:
        deadline = time.monotonic() + 5
        while not memorygroup.remove(group) and time.monotonic() < deadline:
            memorygroup.kill(group)
            time.sleep(0.1)
        gone = not group.exists()
        done.append(f"{'removed' if gone else 'could not remove'} the control group {group}")
    ours = [
        point
        for point in record.mounts
        if (mounted := mounts.at(point)) is not None and mounted.source in record.loops
    ]
    for point in [*ours, *mounts.below(record.folder)]:
        done.append(f"unmounted {point}")
        subprocess.run(["umount", "--lazy", str(point)], capture_output=True)
    for device in record.loops:
        block = Path("/sys/block") / Path(device).name
        backing = block / "loop" / "backing_file"
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and _is_below(Path(device), record.folder):
            subprocess.run(["losetup", "-d", device], capture_output=True)
            time.sleep(0.1)
        with contextlib.suppress(OSError):
            if not backing.exists():
                (block / "queue" / "write_cache").write_text("write back")
                if before := record.read_ahead.get(device):
                    _read_ahead(Path(device)).write_text(before)
        done.append(f"reset {device}")
    there = [folder for folder in record.folders if folder.exists()]
    done += _put_back(record, lambda: jsonfile.save(file, record))
    _remove(record)
    done += [f"removed {one}" for one in (*there, record.folder) if not one.exists()]
    return done


def _drive_servers(folder: Path) -> list[Process]:
    """Return the drives' servers of the folder: a kill may come before they are noted."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        words = process.info["cmdline"] or []
        if process.info["name"] == "wal-drive" and any(w.startswith(f"{folder}/") for w in words):
            with contextlib.suppress(psutil.Error):
                found.append(identify(process.pid))
    return found


def _is_below(device: Path, folder: Path) -> bool:
    """Whether the loop device is attached to a file in the folder."""
    return loop.name_of(device).startswith(f"{folder}/")
