"""The ledger's records: which are trusted, in which order they are undone, and what stays noted.

Nothing is made or undone outside of the test's folder, and nothing takes rights.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wallab import paths
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.machine import ledger, running
from wallab.machine.cacheswitch import CacheState
from wallab.machine.ledger import Ledger, Record, Thing
from wallab.machine.loop import Attached
from wallab.machine.memorygroup import Group
from wallab.machine.mounts import Mounted, MountsBelow
from wallab.machine.owned import Owned
from wallab.machine.running import DriveServers, Process
from wallab.machine.scratch import Folder

DEAD = Process(1, 1, "never")


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folders of records: one that a reboot empties, one that lasts."""
    folders = tmp_path / "runtime", tmp_path / "state"
    monkeypatch.setenv("WALLAB_RUNTIME", str(folders[0]))
    monkeypatch.setenv("WALLAB_STATE", str(folders[1]))
    for folder in folders:
        folder.mkdir(mode=0o700)
    return folders


def plant(home: Path, name: str, *things: Thing, owner: Process = DEAD) -> Path:
    """Leave a record."""
    file = home / f"{name}.json"
    jsonfile.save(file, Record(owner, home / name, list(things)))
    return file


def noted(file: Path) -> list[Thing]:
    """What a record has."""
    return jsonfile.load(file, Record).owned


def myself() -> Process:
    """This process."""
    return running.identify(os.getpid())


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> list[Owned]:
    """What is undone, in order: it is noted, and nothing happens."""
    things: list[Owned] = []

    def undo(thing: Owned) -> str:
        things.append(thing)
        return f"undid {type(thing).__name__}"

    for kind in (
        Process, DriveServers, Group, Mounted, MountsBelow, Attached, CacheState, Folder
    ):  # fmt: skip
        monkeypatch.setattr(kind, "undo", undo)
    return things


# Which folders and records are trusted.


class Home:
    """A folder as lstat tells it."""

    def __init__(self, mode: int, user: int) -> None:
        self._status = SimpleNamespace(st_mode=mode, st_uid=user)

    def lstat(self) -> SimpleNamespace:
        """Tell it."""
        return self._status

    def __str__(self) -> str:
        return "/the/home"


FOLDER, LINK, FILE = 0o040000, 0o120000, 0o100000
LET = "nobody else may write it; remove it, or set WALLAB_RUNTIME (or WALLAB_STATE) to a folder"


@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize(
    ("mode", "who", "reason"),
    [
        (FOLDER | 0o700, "me", ""),
        (FOLDER | 0o1700, "me", ""),
        (FOLDER | 0o755, "me", "open"),
        (FOLDER | 0o750, "me", "open"),
        (FOLDER | 0o710, "me", "open"),
        (FOLDER | 0o701, "me", "open"),
        (FOLDER | 0o720, "me", "gives others rights (mode 720)"),
        (FOLDER | 0o702, "me", "gives others rights (mode 702)"),
        (FOLDER | 0o1777, "me", "gives others rights (mode 1777)"),
        (FOLDER | 0o700, "another", "is user 4321's"),
        (LINK | 0o777, "me", "is no folder, or a link"),
        (FILE | 0o600, "me", "is no folder, or a link"),
    ],
)
def test_folders_of_records_that_are_trusted(
    monkeypatch: pytest.MonkeyPatch, lasting: bool, root: bool, mode: int, who: str, reason: str
) -> None:
    user = 0 if root else 1234
    monkeypatch.setattr(os, "geteuid", lambda: user)
    home: Any = Home(mode, user if who == "me" else 4321)
    if lasting:
        monkeypatch.setattr(paths, "state", lambda: home)
    if reason == "open":  # to be read: servers of root's runs are other users
        reason = "" if root or lasting else f"gives others rights (mode {mode & 0o777:o})"
    if not reason:
        ledger._check(home)
        return
    with pytest.raises(MachineError) as refused:
        ledger._check(home)
    assert str(refused.value).startswith(f"/the/home {reason}: what the lab is to undo is kept")
    assert LET in str(refused.value)


def test_folder_of_records_is_made_with_its_parents(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("WALLAB_RUNTIME", "WALLAB_STATE")):
        home = homes[number] / "deep" / "home"
        monkeypatch.setenv(name, str(home))
        owned = Ledger.open(lasting=bool(number))
        closed = os.geteuid() != 0 and not number
        assert home.stat().st_mode & 0o777 == (0o700 if closed else 0o755)
        assert owned.folder.parent == home
        assert owned.folder.stat().st_mode & 0o777 == 0o755
        assert noted(home / f"{owned.folder.name}.json") == [
            DriveServers(owned.folder), MountsBelow(owned.folder), Folder(owned.folder)
        ]  # fmt: skip
        assert re.fullmatch(rf"{os.getpid()}-[0-9a-f]{{8}}", owned.folder.name)
        owned.close()
        assert list(home.iterdir()) == []


def test_folder_of_records_that_cannot_be_made(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (homes[0] / "file").touch()
    monkeypatch.setenv("WALLAB_RUNTIME", f"{homes[0]}/file/home")
    with pytest.raises(MachineError, match=rf"^{homes[0]}/file/home: Not a directory$"):
        Ledger.open()
    monkeypatch.setenv("WALLAB_RUNTIME", f"{homes[0]}/file")
    with pytest.raises(MachineError, match="is no folder, or a link"):
        Ledger.open()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied"), ": Permission denied$"),
        (FileExistsError(17, "File exists"), " is there already; is it in use\\?$"),
    ],
)
def test_no_record_without_its_folder(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    mkdir = Path.mkdir

    def refuse(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name == "mine":
            raise error
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(MachineError, match=f"^{homes[0]}/mine{words}"):
        Ledger.open("mine")
    assert list(homes[0].iterdir()) == []


def test_a_name_that_is_in_use(homes: tuple[Path, Path]) -> None:
    first = Ledger.open("mine")
    with pytest.raises(MachineError, match=rf"^{homes[0]}/mine is there already; is it in use\?$"):
        Ledger.open("mine")
    assert first.folder.is_dir()
    first.close()


def test_folders_of_records_that_there_are(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ledger.homes() == [*homes]
    homes[0].rmdir()
    assert ledger.homes() == [homes[1]]
    homes[0].symlink_to("nowhere")
    with pytest.raises(MachineError, match="or a link"):
        ledger.homes()


def test_records_by_who_wrote_them(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = plant(homes[0], "theirs", Folder(homes[1]))
    assert list(ledger.records().readable) == [file]
    monkeypatch.setattr(ledger, "_check", lambda home: None)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    records = ledger.records()
    assert records.readable == {}
    assert records.unreadable == {
        file: f"{file} is another user's, and nothing that it says is done: remove it"
    }
    assert ledger.dead() == [file]
    assert ledger.clear_dead() == list(records.unreadable.values())
    assert file.exists()


def test_damaged_records_and_those_beside(homes: tuple[Path, Path], undone: list[Owned]) -> None:
    damaged = homes[0] / "a.json"
    damaged.write_text("{")
    folder = homes[0] / "b.json.d"
    folder.mkdir()
    whole = plant(homes[0], "c", Folder(homes[0] / "c"))
    lasting = plant(homes[1], "d", Folder(homes[1] / "d"))
    assert ledger.dead() == [damaged, whole, lasting]
    lines = ledger.clear_dead()
    assert lines[0].startswith(f"{damaged} is damaged (")
    assert lines[0].endswith("): what it names is still to be undone, by hand; then remove it")
    assert lines[1:] == ["undid Folder"] * 2
    assert undone == [Folder(homes[0] / "c"), Folder(homes[1] / "d")]
    assert ledger.dead() == [damaged]


def test_a_record_that_goes_meanwhile(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner has ended; the others are read all the same."""
    plant(homes[0], "a")
    last = plant(homes[0], "b")
    load = jsonfile.load

    def gone(file: Path, shape: type[Record]) -> Record:
        if file.stem == "a":
            raise FileNotFoundError
        return load(file, shape)

    monkeypatch.setattr(jsonfile, "load", gone)
    records = ledger.records()
    assert (list(records.readable), records.unreadable) == ([last], {})


def test_what_a_kill_left_unfinished_goes(homes: tuple[Path, Path]) -> None:
    half = homes[1] / f".x.json.{2**22 + 1}.partial"
    half.touch()
    ledger.clear_dead()
    assert not half.exists()


def test_living_and_dead(homes: tuple[Path, Path]) -> None:
    living = plant(homes[0], "a", owner=myself())
    dead = plant(homes[0], "b")
    records = ledger.records()
    assert list(records.readable) == [living, dead]
    assert list(records.dead()) == [dead]
    assert ledger.dead() == [dead]


# In which order things are undone, and what stays.

LOOP = Attached(Path("/dev/loop0"), "x", 1, "write back", 0)
ALL: tuple[Thing, ...] = (
    Process(7, 7, "now"), DriveServers(Path("/d")), Group(Path("/g")),
    Mounted(Path("/m"), "xfs", LOOP), MountsBelow(Path("/b")), LOOP,
    CacheState("i", "sda", "on", "write back"), Folder(Path("/f")),
)  # fmt: skip


def test_users_are_undone_before_what_they_use(
    homes: tuple[Path, Path], undone: list[Owned]
) -> None:
    plant(homes[0], "a", *ALL[::-1])
    lines = ledger.clear_dead()
    assert undone == list(ALL)
    assert lines == [f"undid {type(thing).__name__}" for thing in ALL]
    assert list(homes[0].iterdir()) == []


def test_of_a_kind_the_latest_goes_first(homes: tuple[Path, Path], undone: list[Owned]) -> None:
    folders = [Folder(Path(f"/{number}")) for number in range(3)]
    plant(homes[0], "a", *folders)
    ledger.clear_dead()
    assert undone == folders[::-1]


@pytest.mark.parametrize("error", [MachineError("still in use"), OSError("still in use")])
def test_what_fails_stays_noted_and_keeps_nothing_else(
    homes: tuple[Path, Path],
    undone: list[Owned],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    file = plant(homes[0], "a", *ALL)
    seen: list[list[Thing]] = []

    def fail(thing: Attached) -> str:
        seen.append(noted(file))
        raise error

    monkeypatch.setattr(Attached, "undo", fail)
    lines = ledger.clear_dead()
    assert lines[5] == "still in use"
    assert len(lines) == 8
    assert undone == [thing for thing in ALL if thing is not LOOP]
    assert noted(file) == [LOOP]
    assert ledger.dead() == [file]
    # What was done already is not noted any more by then, as if a kill came.
    assert seen == [[LOOP, *ALL[6:]]]


def test_what_there_was_nothing_to_do_for_is_not_told(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "undo", lambda folder: "")
    file = plant(homes[0], "a", Folder(Path("/f")))
    assert ledger.clear_dead() == []
    assert not file.exists()


def test_an_ending_run_tells_what_it_had_to_undo(
    undone: list[Owned], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(ledger, "say", messages.append)
    owned = Ledger.open()
    owned.add(LOOP)
    owned.close()
    # Its own folder goes without a word.
    assert messages == ["undid DriveServers", "undid MountsBelow", "undid Attached"]

    def fail(folder: Folder) -> str:
        raise MachineError("it stays")

    monkeypatch.setattr(Folder, "undo", fail)
    again = Ledger.open()
    messages.clear()
    again.close()
    assert messages[-1] == "it stays"
    assert len(undone) == 6


def test_an_ending_run_puts_its_own_disks_back(undone: list[Owned]) -> None:
    owned = Ledger.open(lasting=True)
    owned.add_cache(SDA)
    owned.close()
    assert SDA in undone


def test_a_record_that_is_removed_meanwhile(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = plant(homes[0], "a", Folder(Path("/f")))

    def undo(folder: Folder) -> str:
        file.unlink()
        return "done"

    monkeypatch.setattr(Folder, "undo", undo)
    assert ledger.clear_dead() == ["done"]


# One thing at a time.


@pytest.mark.parametrize("error", [None, MachineError("x"), OSError("x")])
def test_a_thing_is_struck_when_it_is_undone(
    undone: list[Owned], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    owned = Ledger.open("a")
    file = owned.folder.with_name("a.json")
    owned.add(LOOP)
    before = noted(file)
    if error:

        def fail(loop: Attached) -> str:
            raise error

        monkeypatch.setattr(Attached, "undo", fail)
    owned.undo(LOOP)
    assert noted(file) == (before if error else before[:-1])
    owned.undo(ALL[0])  # one that was never noted
    assert noted(file) == (before if error else before[:-1])


def test_a_fault_of_the_lab_is_not_hidden() -> None:
    owned = Ledger.open("a")
    owned.add(LOOP)
    with pytest.raises(KeyError), owned.undoing(LOOP):
        raise KeyError
    assert LOOP in noted(owned.folder.with_name("a.json"))


def test_a_folder_is_noted_before_and_after_it_is_made(
    homes: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = Ledger.open("a")
    file = homes[0] / "a.json"
    mkdir, seen = Path.mkdir, []

    def made(path: Path, mode: int = 0o777, **options: Any) -> None:
        seen.append((noted(file)[-1], mode))
        mkdir(path, mode, **options)

    monkeypatch.setattr(Path, "mkdir", made)
    folder = owned.make(Folder(tmp_path / "x"))
    assert seen == [(Folder(tmp_path / "x"), 0o755)]
    assert folder.inode == (tmp_path / "x").lstat().st_ino
    assert noted(file)[3:] == [folder]
    owned.make(Folder(tmp_path / "y"), 0o700)
    assert seen[-1][1] == 0o700
    with pytest.raises(FileExistsError):
        owned.make(Folder(tmp_path / "x"))
    assert len(noted(file)) == 5


def test_processes_are_noted_as_they_are(homes: tuple[Path, Path]) -> None:
    owned = Ledger.open("a")
    owned.add_process(os.getpid())
    assert noted(homes[0] / "a.json")[-1] == myself()
    owned.hand_over(os.getppid())
    record = jsonfile.load(homes[0] / "a.json", Record)
    assert record.owner == running.identify(os.getppid())
    assert record.folder == homes[0] / "a"


# Disks that several runs know.

SDA = CacheState("naa.1", "sda", "on", "write back")
SDB = CacheState("naa.1", "sdb", "on", "write back")
"""The same disk, by another way to it."""


def caches(home: Path, name: str) -> list[Thing]:
    """The disks that a record has."""
    return [thing for thing in noted(home / f"{name}.json") if isinstance(thing, CacheState)]


def test_a_disk_is_noted_once_for_each_name(homes: tuple[Path, Path]) -> None:
    owned = Ledger.open("a", lasting=True)
    owned.add_cache(SDA)
    owned.add_cache(CacheState("naa.1", "sda", "off", "write through"))
    owned.add_cache(SDB)
    other = CacheState("naa.2", "sda", "on", "write back")
    owned.add_cache(other)
    assert caches(homes[1], "a") == [SDA, SDB, other]


@pytest.mark.parametrize(
    ("state", "owner", "refused"),
    [
        (SDA, myself, True),
        (SDB, myself, True),
        (SDA, lambda: DEAD, False),
        (CacheState("naa.2", "sda", "on", "write back"), myself, False),
    ],
)
def test_a_disk_of_a_run_that_lives(
    homes: tuple[Path, Path], state: CacheState, owner: Callable[[], Process], refused: bool
) -> None:
    plant(homes[1], "theirs", state, owner=owner())
    owned = Ledger.open("a", lasting=True)
    if not refused:
        owned.add_cache(SDA)
        assert caches(homes[1], "a") == [SDA]
        return
    words = rf"^sda is in use by another run \(process {os.getpid()}\); wait for its end$"
    with pytest.raises(MachineError, match=words):
        owned.add_cache(SDA)
    assert caches(homes[1], "a") == []


def test_two_runs_that_look_at_the_same_time(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have noted it then, and each takes that back."""
    owned = Ledger.open("a", lasting=True)
    looks: list[CacheState] = []

    def look(before: CacheState) -> None:
        looks.append(before)
        if caches(homes[1], "a"):
            raise MachineError("now it is")

    monkeypatch.setattr(owned, "_refuse_shared", look)
    with pytest.raises(MachineError, match="now it is"):
        owned.add_cache(SDA)
    assert looks == [SDA, SDA]
    assert caches(homes[1], "a") == []


def test_a_disk_in_use_is_not_put_back(homes: tuple[Path, Path], undone: list[Owned]) -> None:
    dead = plant(homes[1], "dead", SDA, Folder(Path("/f")))
    living = plant(homes[1], "living", SDB, owner=myself())
    assert ledger.records().disks_in_use() == {"naa.1"}
    lines = ledger.clear_dead()
    assert lines == [
        "sda is in use by another run; its write cache is still to be put back to on, write back: "
        "run scripts/drive restore after that",
        "undid Folder",
    ]
    assert noted(dead) == [SDA]
    living.unlink()
    assert ledger.records().disks_in_use() == set()
    assert ledger.clear_dead() == ["undid CacheState"]
    assert undone == [Folder(Path("/f")), SDA]
