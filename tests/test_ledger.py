"""The ledger: what is undone after a kill, what is left alone, and what is kept for later."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import msgspec
import psutil
import pytest
from click.testing import CliRunner, Result
from fakedisks import ata
from fakesysfs import FakeMachine, stand_in

from wallab import paths
from wallab.command import drive as drive_command
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.machine import blockdevice, cacheswitch, ledger, memorygroup, process, running, scratch
from wallab.machine.blockdevice import Disk
from wallab.machine.cacheswitch import CacheState
from wallab.machine.ledger import Ledger, Record
from wallab.machine.memorygroup import MemoryGroup
from wallab.machine.running import Process
from wallab.machine.scratch import Folder

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to others")

STRANGER = 54321
"""The number of a user that is not there."""


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folders of records, for this test alone: one that a reboot empties, one that lasts."""
    folders = tmp_path / "runtime", tmp_path / "state"
    monkeypatch.setenv("WALLAB_RUNTIME", str(folders[0]))
    monkeypatch.setenv("WALLAB_STATE", str(folders[1]))
    return folders


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not the lab's."""
    with process.started(["sleep", "600"]) as child:
        yield child


def kill_owner(owned: Ledger) -> Path:
    """Leave the ledger as a run leaves it that is killed; return its record."""
    with process.started(["sleep", "600"]) as owner:
        owned.hand_over(owner.pid)
    (record,) = (file for file in ledger.dead() if file.stem == owned.folder.name)
    return record


def restore() -> Result:
    """Run scripts/drive restore."""
    return CliRunner().invoke(drive_command.command, ["restore"])


def test_nothing_is_left_of_a_run_that_ends(homes: tuple[Path, Path]) -> None:
    for lasting in (False, True):
        owned = Ledger.open(lasting=lasting)
        (owned.folder / "file").touch()
        owned.close()
    assert [list(home.iterdir()) for home in homes] == [[], []]


def test_a_killed_run_is_cleared(tmp_path: Path, homes: tuple[Path, Path]) -> None:
    owned = Ledger.open()
    folder = owned.make(scratch.named(tmp_path, "scratch")).path
    (folder / "deep").mkdir()
    with process.started(["sleep", "600"]) as child:
        owned.add_process(child.pid)
        kill_owner(owned)
        lines = ledger.clear_dead()
        assert not psutil.pid_exists(child.pid)
    assert lines == [
        f"ended process {child.pid} (sleep)",
        f"removed {folder}",
        f"removed {owned.folder}",
    ]
    assert list(homes[0].iterdir()) == []
    assert not folder.exists()
    assert ledger.clear_dead() == []


def test_what_lives_is_left_alone(tmp_path: Path) -> None:
    owned = Ledger.open()
    folder = owned.make(scratch.named(tmp_path, "scratch")).path
    assert ledger.clear_dead() == []
    assert ledger.dead() == []
    assert folder.is_dir()
    owned.close()


def test_what_was_noted_and_never_made_is_no_fault(tmp_path: Path) -> None:
    """A kill may come between the two."""
    owned = Ledger.open()
    owned.add(scratch.named(tmp_path, "scratch"))
    kill_owner(owned)
    assert ledger.clear_dead() == [f"removed {owned.folder}"]


def test_things_are_undone_before_what_they_use() -> None:
    order = [kind.__name__ for kind in get_args(ledger.Thing)]
    assert order == [
        "Process", "DriveServers", "Group", "Mounted", "MountsBelow", "Attached", "CacheState",
        "Folder",
    ]  # fmt: skip


# Processes.


def others(pid: int) -> list[Process]:
    """Processes that had the number before the one that has it now."""
    now = running.identify(pid)
    return [
        msgspec.structs.replace(now, started=now.started - 1),
        msgspec.structs.replace(now, started=now.started + 1),
        msgspec.structs.replace(now, boot="another"),
    ]


def test_a_number_that_another_process_has_by_now(sleeper: subprocess.Popen[bytes]) -> None:
    owned = Ledger.open()
    for earlier in others(sleeper.pid):
        owned.add(earlier)
    kill_owner(owned)
    assert ledger.clear_dead() == [f"removed {owned.folder}"]
    assert sleeper.poll() is None


@pytest.mark.parametrize("which", range(3))
def test_an_owner_whose_number_another_process_has_by_now(
    sleeper: subprocess.Popen[bytes], which: int
) -> None:
    owned = Ledger.open()
    file = owned.folder.with_name(f"{owned.folder.name}.json")
    owned.hand_over(sleeper.pid)
    assert ledger.dead() == []
    record = jsonfile.load(file, Record)
    record.owner = others(sleeper.pid)[which]
    jsonfile.save(file, record)
    assert ledger.clear_dead() == [f"removed {owned.folder}"]
    assert sleeper.poll() is None


def test_what_is_deaf_to_the_first_signal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PATIENCE", 0.5)
    deaf = ["sh", "-c", "trap '' QUIT; echo ready; sleep 600 & wait; sleep 600"]
    owned = Ledger.open()
    with process.started(deaf, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        owned.add_process(child.pid)
        owned.close()
        assert not psutil.pid_exists(child.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def copy_of_sleep(folder: Path) -> Path:
    """Put a program into the folder."""
    program = folder / "program"
    shutil.copy2(shutil.which("sleep") or "sleep", program)
    return program


def test_programs_in_a_folder_end_with_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    owned = Ledger.open()
    folder = owned.make(scratch.named(tmp_path / "link", "scratch")).path
    with process.started([copy_of_sleep(folder), "600"]) as child:
        kill_owner(owned)
        lines = ledger.clear_dead()
        assert not psutil.pid_exists(child.pid)
    assert f"ended process {child.pid} (program); removed {folder}" in lines


@pytest.mark.stack
def test_a_program_at_the_same_path_elsewhere_goes_on(tmp_path: Path) -> None:
    """As in a container, whose paths are its own."""
    owned = Ledger.open()
    folder = owned.make(scratch.named(tmp_path, "scratch")).path
    hidden = (
        f'mount -t tmpfs none "{tmp_path}" && mkdir "{folder}" && '
        f'cp "$(command -v sleep)" "{folder}/program" && echo ready && exec "{folder}/program" 600'
    )
    command = ["unshare", "--mount", "sh", "-c", hidden]
    with process.started(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        kill_owner(owned)
        ledger.clear_dead()
        assert not folder.exists()
        assert child.poll() is None
        assert psutil.Process(child.pid).is_running()


@pytest.mark.stack
@pytest.mark.parametrize("elsewhere", [True, False])
def test_servers_of_drives_that_were_not_noted(tmp_path: Path, elsewhere: bool) -> None:
    """A kill may come before; those of another container name the same folder."""
    owned = Ledger.open()
    program = tmp_path / "programs" / "wal-drive"
    program.parent.mkdir()
    shutil.copy2(shutil.which("sh") or "sh", program)
    runtime = owned.folder.parent
    hide = f'mount -t tmpfs none "{runtime}" && mkdir "{owned.folder}" && ' if elsewhere else ""
    script = f'{hide}exec "{program}" -c "echo ready; read -r none" sh "{owned.folder}/fuse"'
    command = ["unshare", "--mount", "sh", "-c", script]
    with process.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        kill_owner(owned)
        ended = f"ended process {child.pid} (wal-drive)" in ledger.clear_dead()
        assert ended is not elsewhere
        assert psutil.pid_exists(child.pid) is elsewhere


# Restores that fail.


@pytest.fixture
def bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-in tools come first on PATH; the file has the bit that they show and set."""
    return stand_in(tmp_path, monkeypatch)


@pytest.fixture
def machine(tmp_path: Path, bit: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A machine without disks, on which caches are put back."""
    machine = FakeMachine(tmp_path / "machine")
    every_disk = blockdevice.every_disk
    monkeypatch.setattr(cacheswitch, "every_disk", lambda root: every_disk(machine.root))
    return machine


def scsi(machine: FakeMachine) -> Disk:
    """A SCSI disk."""
    return blockdevice.describe(machine.scsi("sda", "8:0", "mptsas", "HP", "EF0300FATFD", 0))


def nvme(machine: FakeMachine) -> Disk:
    """An NVMe namespace."""
    return blockdevice.describe(machine.nvme("nvme0n1", "259:0"))


GONE = CacheState("naa.gone", "sdz", "off", "write through")


@pytest.mark.usefixtures("machine")
def test_a_failed_restore_is_kept_and_told() -> None:
    owned = Ledger.open(lasting=True)
    owned.add_cache(GONE)
    record = kill_owner(owned)
    for _ in range(2):
        (line,) = (line for line in ledger.clear_dead() if "removed" not in line)
        assert "sdz (naa.gone) is not here" in line
        assert ledger.dead() == [record]
        assert GONE in jsonfile.load(record, Record).owned
        result = restore()
        assert isinstance(result.exception, MachineError)
        assert "nothing was left behind" not in result.output
        assert str(record) in str(result.exception)


def test_a_failed_restore_is_done_when_it_can_be(machine: FakeMachine, bit: Path) -> None:
    owned = Ledger.open(lasting=True)
    disk = ata(machine)
    owned.add_cache(cacheswitch.state(disk))
    owned.add_cache(GONE)
    cacheswitch.set_to(disk, "off", "write through")
    Path(f"{bit}.stuck").touch()
    record = kill_owner(owned)
    assert any("stays off, not on" in line for line in ledger.clear_dead())
    assert len(jsonfile.load(record, Record).owned) == 2
    Path(f"{bit}.stuck").unlink()
    assert "put the write cache of sda back: on, write back" in ledger.clear_dead()
    # One that fails keeps no other from being put back, nor is it forgotten with that.
    assert jsonfile.load(record, Record).owned == [GONE]


@pytest.mark.usefixtures("machine")
def test_a_restore_that_fails_as_the_run_ends(capsys: pytest.CaptureFixture[str]) -> None:
    owned = Ledger.open(lasting=True)
    owned.add_cache(GONE)
    owned.close()
    assert "sdz (naa.gone) is not here" in capsys.readouterr().err
    record = owned.folder.with_name(f"{owned.folder.name}.json")
    assert jsonfile.load(record, Record).owned == [GONE]


def test_an_early_undoing_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = Ledger.open()
    folder = owned.make(scratch.named(tmp_path, "scratch"))

    def fail(_: Path) -> None:
        raise MachineError("it is busy")

    with monkeypatch.context() as stuck:
        stuck.setattr(scratch, "remove", fail)
        owned.undo(folder)
    assert folder.path.exists()
    owned.close()
    assert not folder.path.exists()


# Caches, from every state.


@pytest.mark.parametrize("kind", [ata, scsi, nvme])
@pytest.mark.parametrize("drive", ["on", "off"])
@pytest.mark.parametrize("kernel", ["write back", "write through"])
@pytest.mark.parametrize("killed", [True, False])
def test_caches_are_put_back_as_they_were(
    machine: FakeMachine,
    bit: Path,
    kind: Callable[[FakeMachine], Disk],
    drive: str,
    kernel: str,
    killed: bool,
) -> None:
    disk = kind(machine)
    for to_drive in ("on", "off"):
        for to_kernel in ("write back", "write through"):
            bit.write_text("1" if drive == "on" else "0")
            (disk.sysfs / "queue/write_cache").write_text(kernel)
            before = cacheswitch.state(disk)
            assert before == CacheState(disk.identity, disk.name, drive, kernel)
            owned = Ledger.open(lasting=True)
            owned.add_cache(before)
            cacheswitch.set_to(disk, to_drive, to_kernel)
            owned.add_cache(cacheswitch.state(disk))  # for a second drive on the disk
            if killed:
                kill_owner(owned)
                ledger.clear_dead()
            else:
                owned.close()
            assert cacheswitch.state(disk) == before
            assert ledger.dead() == []


def test_every_way_to_a_disk_is_put_back(machine: FakeMachine) -> None:
    """A multipath disk has several names, each with a belief of the kernel's own."""
    folders = [
        machine.scsi(name, number, "qla2xxx", "HP", "HSV300", place)
        for place, (name, number) in enumerate((("sda", "8:0"), ("sdb", "8:16")))
    ]
    for folder in folders:
        machine.write(folder.resolve().parents[1] / "wwid", "naa.the-same")
    owned = Ledger.open(lasting=True)
    disks = [blockdevice.describe(folder) for folder in folders]
    assert disks[0].identity == disks[1].identity == "naa.the-same"
    machine.write(disks[1].sysfs / "queue/write_cache", "write through")
    before = [cacheswitch.state(disk) for disk in disks]
    for state in before:
        owned.add_cache(state)
    for disk, kernel in zip(disks, ("write through", "write back"), strict=True):
        cacheswitch.set_to(disk, "off", kernel)
    kill_owner(owned)
    ledger.clear_dead()
    assert [cacheswitch.state(disk) for disk in disks] == before


def test_a_disk_that_another_run_uses_is_not_switched_under_it(
    machine: FakeMachine, bit: Path
) -> None:
    disk = ata(machine)
    dead = Ledger.open(lasting=True)
    dead.add_cache(cacheswitch.state(disk))
    Path(f"{bit}.stuck").touch()
    record = kill_owner(dead)
    bit.write_text("0")
    ledger.clear_dead()
    Path(f"{bit}.stuck").unlink()
    living = Ledger.open(lasting=True)
    living.add_cache(cacheswitch.state(disk))
    assert any("sda is in use by another run" in line for line in ledger.clear_dead())
    assert bit.read_text().strip() == "0"
    assert ledger.dead() == [record]
    living.close()
    assert any("put the write cache of sda back: on" in line for line in ledger.clear_dead())
    assert ledger.dead() == []


# Records that cannot be trusted.


DEEP = b'{"x": ' + b"[" * 100_000


@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize(
    "damage", [b"", b"\0" * 300, b"{}", b"[1]", b"\xff\xfe", DEEP, None, b"unknown"]
)
def test_a_damaged_record_is_told_and_kept(damage: bytes | None, lasting: bool) -> None:
    owned = Ledger.open(lasting=lasting)
    owned.add(CacheState("naa.1", "sdz", "on", "write back"))
    record = kill_owner(owned)
    whole = record.read_bytes()
    if damage == b"unknown":
        damage = whole.replace(b'"CacheState"', b'"Kettle"')
    record.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    (line,) = ledger.clear_dead()
    assert line.startswith(f"{record} is damaged (")
    assert ledger.dead() == [record]
    result = restore()
    assert isinstance(result.exception, MachineError)
    assert result.exception.exit_code == 3
    assert "nothing was left behind" not in result.output
    assert "is damaged" in result.stdout
    assert record.exists()


@as_root
def test_a_record_of_another_user_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    owned = Ledger.open()
    owned.add(Folder(folder))
    record = kill_owner(owned)
    os.chown(record, STRANGER, STRANGER)
    (line,) = ledger.clear_dead()
    assert "is another user's" in line
    assert folder.is_dir()
    assert ledger.dead() == [record]
    os.chown(record, 0, 0)
    ledger.clear_dead()
    assert not folder.exists()


def plant(home: Path, victim: Path) -> None:
    """Leave a record, of an owner that is dead, that names somebody else's folder."""
    home.mkdir()
    record = Record(Process(1, 1, "never"), home / "planted", [Folder(victim)])
    jsonfile.save(home / "planted.json", record)


@as_root
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["another's", "open to the group", "open to all", "link", "file"])
def test_a_folder_of_records_that_others_can_write_is_refused(
    homes: tuple[Path, Path], tmp_path: Path, which: int, how: str
) -> None:
    home, victim = homes[which], tmp_path / "victim"
    victim.mkdir()
    plant(home, victim)
    if how == "another's":
        os.chown(home, STRANGER, STRANGER)
    elif how == "link":
        home.rename(tmp_path / "elsewhere")
        home.symlink_to(tmp_path / "elsewhere")
    elif how == "file":
        shutil.rmtree(home)
        home.touch()
    else:
        home.chmod(0o775 if "group" in how else 0o757)
    for act in (ledger.clear_dead, ledger.dead, lambda: Ledger.open(lasting=bool(which))):
        with pytest.raises(MachineError, match=r"nobody else may write it; remove it, or set"):
            act()
    assert isinstance(restore().exception, MachineError)
    assert victim.is_dir()


@as_root
@pytest.mark.parametrize(("mode", "refused"), [(0o700, False), (0o755, True), (0o750, True)])
def test_without_root_the_runtime_folder_is_closed(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, mode: int, refused: bool
) -> None:
    homes[0].mkdir()
    homes[0].chmod(mode)
    os.chown(homes[0], STRANGER, STRANGER)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with pytest.raises(MachineError) if refused else contextlib.nullcontext():
        assert ledger.dead() == []


def test_the_runtime_folder_is_made_closed(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger.open().close()
    assert homes[0].stat().st_mode & 0o777 == (0o755 if os.geteuid() == 0 else 0o700)
    homes[0].rmdir()
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with contextlib.suppress(MachineError):  # root made it, and not that user
        Ledger.open().close()
    assert homes[0].stat().st_mode & 0o777 == 0o700


# What others made.


def test_a_folder_that_was_there_is_not_the_labs(tmp_path: Path) -> None:
    theirs = tmp_path / "wal-lab-1"
    theirs.mkdir()
    (theirs / "file").touch()
    owned = Ledger.open()
    with pytest.raises(FileExistsError):
        owned.make(Folder(theirs))
    kill_owner(owned)
    ledger.clear_dead()
    assert (theirs / "file").exists()


def test_a_folder_in_the_place_of_the_labs(tmp_path: Path) -> None:
    owned = Ledger.open()
    folder = owned.make(scratch.named(tmp_path, "scratch")).path
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    (folder / "file").touch()
    owned.close()
    assert (folder / "file").exists()


def test_a_folder_in_the_place_of_the_ledgers(homes: tuple[Path, Path]) -> None:
    homes[0].mkdir(mode=0o700)
    (homes[0] / "mine" / "deep").mkdir(parents=True)
    with pytest.raises(MachineError, match="is there already"):
        Ledger.open("mine")
    assert [file.name for file in homes[0].iterdir()] == ["mine"]


def test_names_of_folders_are_not_guessed(tmp_path: Path) -> None:
    names = {scratch.named(tmp_path, "x").path.name for _ in range(50)}
    assert len(names) == 50


def needs_groups() -> None:
    """Skip where memory cannot be limited."""
    if reason := memorygroup.lacking():
        pytest.skip(reason)


@pytest.mark.stack
@pytest.mark.parametrize("killed", [True, False])
def test_a_control_group_of_others_is_left_alone(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    needs_groups()
    with contextlib.closing(Ledger.open("theirs")) as others:
        theirs = MemoryGroup(f"wal-lab-{os.getpid()}", 64 << 20, others)
        theirs.add(sleeper.pid)
        token = theirs.path.name.rpartition("-")[2]
        monkeypatch.setattr(secrets, "token_hex", lambda _: token)
        owned = Ledger.open("mine")
        with pytest.raises(MachineError, match="File exists"):
            MemoryGroup(f"wal-lab-{os.getpid()}", 64 << 20, owned)
        if killed:
            kill_owner(owned)
            ledger.clear_dead()
        else:
            owned.close()
        assert sleeper.poll() is None
        assert theirs.path.is_dir()


@pytest.mark.stack
@pytest.mark.parametrize("killed", [True, False])
def test_a_control_group_goes_with_what_is_in_it(
    sleeper: subprocess.Popen[bytes], killed: bool
) -> None:
    needs_groups()
    owned = Ledger.open()
    group = MemoryGroup("wal-lab-test-ledger", 64 << 20, owned)
    group.add(sleeper.pid)
    if killed:
        kill_owner(owned)
        assert f"removed the control group {group.path}" in ledger.clear_dead()
    else:
        group.close()
        owned.close()
    assert sleeper.wait(60) == -signal.SIGKILL
    assert not group.path.exists()
    assert ledger.dead() == []


@pytest.mark.stack
def test_groups_of_one_name_are_apart() -> None:
    """Process numbers, which names are made of, come again; and containers have the same."""
    needs_groups()
    owned = Ledger.open()
    groups = [MemoryGroup("wal-lab-test-ledger", 64 << 20, owned) for _ in range(2)]
    assert groups[0].path != groups[1].path
    owned.close()
    assert not any(group.path.exists() for group in groups)


# Mounts.


@contextlib.contextmanager
def bound(folder: Path, point: Path) -> Iterator[None]:
    """Show a folder at another place."""
    point.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", folder, point], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", point], capture_output=True)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file that is shown in another place, too."""
    file = tmp_path / "theirs" / "precious"
    file.parent.mkdir()
    file.touch()
    return file


@pytest.mark.stack
@pytest.mark.parametrize("through_link", [True, False])
@pytest.mark.parametrize("below", ["", "deep"])
def test_nothing_is_deleted_through_a_mount(
    tmp_path: Path, precious: Path, through_link: bool, below: str
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    owned = Ledger.open()
    parent = tmp_path / ("link" if through_link else "real")
    folder = owned.make(scratch.named(parent, "scratch"))
    if not below:  # what covers the folder has another number; one that is not noted is guarded
        owned.add(Folder(folder.path))
    with bound(precious.parent, folder.path / below):
        record = kill_owner(owned)
        assert any(
            f"{folder.path} stays, for something is mounted at" in line
            for line in ledger.clear_dead()
        )
        assert precious.exists()
        assert record.exists()
    ledger.clear_dead()
    assert precious.exists()
    assert not folder.path.exists()
    assert not record.exists()


@pytest.mark.stack
@pytest.mark.parametrize("killed", [True, False])
def test_what_is_mounted_in_the_labs_own_folder_is_unmounted(precious: Path, killed: bool) -> None:
    owned = Ledger.open()
    with bound(precious.parent, owned.folder / "server"):
        if killed:
            kill_owner(owned)
            assert f"unmounted {owned.folder}/server" in ledger.clear_dead()
        else:
            owned.close()
    assert precious.exists()
    assert not owned.folder.exists()


KILLED_CHECK = """
import os, signal
from wallab.servers import checks
class Server:
    class build: variant = version = build_system = ""
class Builder:
    def trusts(self, patches): return True
def fill(kit, builder, server, patches, suites):
    print(kit.parent, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
checks._fill = fill
checks.check(Builder(), Server, [], ())
"""


def test_the_folder_of_a_killed_check_is_removed_after_a_reboot(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_CHECK], capture_output=True, text=True, cwd=paths.LAB
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = Path(killed.stdout.strip())
    assert folder.is_dir()
    shutil.rmtree(homes[0], ignore_errors=True)
    assert f"removed {folder}" in ledger.clear_dead()
    assert not folder.exists()
