"""What a running lab owns on this machine, written down so that the next start can clear it.

Mounts and loop devices vanish with the lab's processes; this is for the rest: processes that a
kill orphaned, settings of loop devices and of real disks, and folders. What a reboot does not undo
is kept where it survives one, too (paths.state).
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from wallab import paths
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.machine import running
from wallab.machine.cacheswitch import CacheState
from wallab.machine.loop import Attached
from wallab.machine.memorygroup import Group
from wallab.machine.mounts import Mounted, MountsBelow
from wallab.machine.owned import Made, Owned
from wallab.machine.running import DriveServers, Process
from wallab.machine.scratch import Folder
from wallab.progress import say

Thing = Process | DriveServers | Group | Mounted | MountsBelow | Attached | CacheState | Folder
"""What can be owned; users are undone before what they use."""

_ORDER = get_args(Thing)


class Record(msgspec.Struct):
    """What one run of the lab owns."""

    owner: Process
    folder: Path
    owned: list[Thing]


class _Undone(NamedTuple):
    """What became of a thing."""

    thing: Thing
    line: str
    failed: bool


class Ledger:
    """The record of one owner, and the folder that goes with it."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self._record = record

    @classmethod
    def open(cls, name: str | None = None, *, lasting: bool = False) -> "Ledger":
        """Make a folder below the runtime folder, owned by this process.

        A lasting one survives a reboot. MachineError where others could tamper with it.
        """
        home = paths.state() if lasting else paths.runtime()
        # Nobody else has the name, neither in another container nor after a reboot.
        folder = home / (name or f"{os.getpid()}-{secrets.token_hex(4)}")
        own: list[Thing] = [DriveServers(folder), MountsBelow(folder), Folder(folder)]
        record = Record(running.identify(os.getpid()), folder, own)
        _prepare(home)
        try:
            # The record comes first and goes last, so that a kill leaves no folder without one.
            jsonfile.create(_file(folder), record)
            try:
                folder.mkdir(mode=0o755)
            except OSError:
                _file(folder).unlink()
                raise
        except FileExistsError:
            raise MachineError(f"{folder} is there already; is it in use?") from None
        except OSError as error:
            raise MachineError(f"{folder}: {error.strerror}") from None
        return cls(folder, record)

    def _save(self) -> None:
        jsonfile.save(_file(self.folder), self._record)

    def add(self, thing: Owned) -> None:
        """Note a thing that is to be undone, before it is made or changed."""
        assert isinstance(thing, Thing)
        self._record.owned.append(thing)
        self._save()

    def add_process(self, pid: int) -> None:
        """Note a process that must not outlive the owner."""
        self.add(running.identify(pid))

    def make(self, folder: Made, mode: int = 0o755) -> Made:
        """Make a folder that is to go, and return it as it can be told from others.

        OSError where it cannot be made, or is there: then it is not the lab's, and not noted.
        """
        self.add(folder)
        try:
            folder.path.mkdir(mode)
        except OSError:
            self._strike(folder)
            raise
        made = msgspec.structs.replace(folder, inode=folder.path.lstat().st_ino)
        self.add(made)
        self._strike(folder)
        return made

    def add_cache(self, before: CacheState) -> None:
        """Note the settings that a disk must get back, before they are changed.

        MachineError if another run that lives has noted the same disk.
        """
        for noted in _caches(self._record):
            if (noted.identity, noted.name) == (before.identity, before.name):
                return
        self._refuse_shared(before)
        self.add(before)
        try:
            self._refuse_shared(before)  # two may have looked at the same time
        except MachineError:
            self._strike(before)
            raise

    def _refuse_shared(self, before: CacheState) -> None:
        for file, record in records().readable.items():
            same = any(cache.identity == before.identity for cache in _caches(record))
            if same and file != _file(self.folder) and record.owner.find() is not None:
                raise MachineError(
                    f"{before.name} is in use by another run (process {record.owner.pid}); "
                    "wait for its end"
                )

    def undo(self, thing: Owned) -> None:
        """Undo the thing now; it stays noted, to be tried again by `close`, where that fails."""
        with self.undoing(thing):
            thing.undo()

    @contextlib.contextmanager
    def undoing(self, thing: Owned) -> Iterator[None]:
        """Strike the thing, which the block undoes; it stays noted where that fails."""
        with contextlib.suppress(MachineError, OSError):
            yield
            self._strike(thing)

    def _strike(self, thing: Owned) -> None:
        with contextlib.suppress(ValueError):  # it may be struck already
            self._record.owned.remove(thing)  # type: ignore[arg-type]
            self._save()

    def hand_over(self, owner: int) -> None:
        """Make another process the owner, so that this one may end."""
        self._record.owner = running.identify(owner)
        self._save()

    def close(self) -> None:
        """Undo what is left, the folder with it; what fails is said, and left to the next start."""
        for undone in _undo(_file(self.folder), self._record, set()):
            if undone.failed or not isinstance(undone.thing, Folder):
                say(undone.line)


def _undo(file: Path, record: Record, in_use: set[str]) -> list[_Undone]:
    """Undo what the record has, but for disks that others use; what fails stays in it."""
    outcomes = []
    things = record.owned[::-1]  # of a kind, the latest goes first
    things.sort(key=lambda thing: _ORDER.index(type(thing)))
    for thing in things:
        try:
            if isinstance(thing, CacheState) and thing.identity in in_use:
                raise MachineError(
                    f"{thing.name} is in use by another run; its write cache is still to be put "
                    f"back to {thing.drive}, {thing.kernel}: run scripts/drive restore after that"
                )
            line = thing.undo()
        except (MachineError, OSError) as error:
            outcomes.append(_Undone(thing, str(error), failed=True))
            continue
        if line:
            outcomes.append(_Undone(thing, line, failed=False))
        record.owned.remove(thing)
        if record.owned:
            jsonfile.save(file, record)
    if not record.owned:
        file.unlink(missing_ok=True)
    return outcomes


def clear_dead() -> list[str]:
    """Undo what dead owners left behind; return what was done, and what could not be, by lines."""
    for home in homes():
        jsonfile.clear_partial(home)
    every = records()
    lines = list(every.unreadable.values())
    for file, record in every.dead().items():
        lines += [undone.line for undone in _undo(file, record, every.disks_in_use())]
    return lines


def dead() -> list[Path]:
    """Return the records whose owners are dead, and those that cannot be read."""
    every = records()
    return [*every.unreadable, *every.dead()]


def homes() -> list[Path]:
    """Return the folders of records that are there, the one that a reboot empties first.

    MachineError where others could tamper with one.
    """
    there = [home for home in (paths.runtime(), paths.state()) if os.path.lexists(home)]
    for home in there:
        _check(home)
    return there


class Records(NamedTuple):
    """All records, by their files."""

    readable: dict[Path, Record]
    """In the order in which they are undone: processes before what they use."""
    unreadable: dict[Path, str]
    """Why not, and what to do."""

    def dead(self) -> dict[Path, Record]:
        """Return those whose owners are dead."""
        return {
            file: record for file, record in self.readable.items() if record.owner.find() is None
        }

    def disks_in_use(self) -> set[str]:
        """Return the identities of disks whose caches runs that live have switched."""
        dead = self.dead()
        return {
            cache.identity
            for file, record in self.readable.items()
            if file not in dead
            for cache in _caches(record)
        }


def records() -> Records:
    """Read all records; MachineError where others could tamper with them."""
    read = Records({}, {})
    for home in homes():
        for file in sorted(home.glob("*.json")):
            try:
                if file.lstat().st_uid != os.geteuid():
                    read.unreadable[file] = (
                        f"{file} is another user's, and nothing that it says is done: remove it"
                    )
                else:
                    read.readable[file] = jsonfile.load(file, Record)
            except FileNotFoundError:
                continue  # its owner has just ended
            except (OSError, msgspec.MsgspecError, RecursionError) as error:
                read.unreadable[file] = (
                    f"{file} is damaged ({error}): what it names is still to be undone, by hand; "
                    "then remove it"
                )
    return read


def _caches(record: Record) -> list[CacheState]:
    return [thing for thing in record.owned if isinstance(thing, CacheState)]


def _file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def _mode(home: Path) -> int:
    """Return the rights of a folder of records: servers of root's runs are other users."""
    return 0o755 if os.geteuid() == 0 or home == paths.state() else 0o700


def _prepare(home: Path) -> None:
    """Make the folder of records if it is not there; MachineError as from `_check`."""
    try:
        home.mkdir(mode=_mode(home), parents=True)
    except FileExistsError:
        pass  # and maybe no folder
    except OSError as error:
        raise MachineError(f"{home}: {error.strerror}") from None
    _check(home)


def _check(home: Path) -> None:
    """MachineError unless the folder is this user's, no link, and closed to others.

    In /tmp anybody may have made it, with records that name what is to be removed.
    """
    status = home.lstat()
    reason = ""
    if not stat.S_ISDIR(status.st_mode):
        reason = "is no folder, or a link"
    elif status.st_uid != os.geteuid():
        reason = f"is user {status.st_uid}'s"
    elif status.st_mode & (0o022 if _mode(home) & 0o055 else 0o077):
        reason = f"gives others rights (mode {stat.S_IMODE(status.st_mode):o})"
    if reason:
        raise MachineError(
            f"{home} {reason}: what the lab is to undo is kept there, and nobody else may write "
            "it; remove it, or set WALLAB_RUNTIME (or WALLAB_STATE) to a folder of your own"
        )
