"""Real drives: directories as they are, and devices whose write cache is switched."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakesysfs import FakeMachine
from smallrun import run_small

from wallab import paths
from wallab.bench.plan import directories_of
from wallab.drives import real as realdrive
from wallab.drives.real import DeviceDrive, DirectoryDrive
from wallab.errors import LabError, MachineError
from wallab.machine import blockdevice, cacheswitch, ledger
from wallab.machine.confinement import Confinement
from wallab.machine.ledger import Ledger
from wallab.record import matrix
from wallab.record.experiment import Cell, Experiment
from wallab.record.writecache import WRITE_CACHES
from wallab.servers.builder import Server

SMALL = """
[experiment.real]
title = "real"
source = "18"
workload = "tpcb-like"
rows = ["variant", "write_cache"]
column = "sync"
[experiment.real.axes]
variant = ["stock"]
write_cache = ["off", "on", "on-unflushed"]
sync = ["fdatasync"]
[experiment.real.drive.wal]
profile = "ata-2005"
size_mb = 512
[experiment.real.drive.data]
profile = "ata-2005"
size_mb = 512
write_cache = "on"
[experiment.real.settings]
max_wal_size = "64MB"
min_wal_size = "64MB"
[experiment.real.preset.smoke]
about = "for tests"
scale = 1
clients = 2
transactions = 5
warm_up_seconds = 0
rounds = 1
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What survives a reboot, kept for this test alone."""
    folder = tmp_path / "state"
    monkeypatch.setenv("WALLAB_STATE", str(folder))
    return folder


@pytest.fixture
def lasting(own_state: Path) -> Iterator[Ledger]:
    """A ledger that survives a reboot, closed afterwards with nothing left."""
    owned = Ledger.open(lasting=True)
    yield owned
    owned.close()
    assert list(own_state.iterdir()) == []


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="wallab-home-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def open_path(home: Path) -> Path:
    """An empty folder that every user can reach."""
    place = home / "place"
    place.mkdir()
    return place


def test_directory_is_put_back(open_path: Path, lasting: Ledger) -> None:
    with contextlib.closing(DirectoryDrive("wal", open_path, lasting)) as drive:
        file = drive.mount_point / "a" / "b"
        file.parent.mkdir()
        file.write_text("kept")
        drive.snapshot()
        for _ in range(2):
            file.write_text("changed")
            (drive.mount_point / "new").touch()
            drive.restore()
            drive.mount()
            assert file.read_text() == "kept"
            assert list(drive.mount_point.iterdir()) == [file.parent]
        assert drive.unavailable("as-is") == ""
        assert drive.unavailable("off")
        with pytest.raises(MachineError, match="as it is"):
            drive.set_write_cache("on")
    assert list(open_path.iterdir()) == []


def test_folder_of_a_dead_run_goes(open_path: Path, own_state: Path) -> None:
    """As after a power failure: the process is gone, and so is the runtime folder."""
    (open_path / "mine").touch()
    die_with(f"DirectoryDrive('wal', Path({str(open_path)!r}), Ledger.open(lasting=True))")
    assert len(list(open_path.iterdir())) == 2
    assert any("removed" in line for line in ledger.clear_dead())
    assert [file.name for file in open_path.iterdir()] == ["mine"]
    assert list(own_state.iterdir()) == []


def die_with(expression: str) -> None:
    """Evaluate in another process that then dies as by kill -9."""
    script = (
        "import os, signal\nfrom pathlib import Path\nfrom wallab.machine.ledger import Ledger\n"
        "from wallab.drives.real import DeviceDrive, DirectoryDrive\n"
        f"drive = {expression}\n"
        "if isinstance(drive, DeviceDrive):\n    drive.set_write_cache('on-unflushed')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert child.returncode == -signal.SIGKILL, child.stderr


def test_no_such_directory(tmp_path: Path, lasting: Ledger) -> None:
    with pytest.raises(LabError, match="name a directory on the drive"):
        DirectoryDrive("wal", tmp_path / "none", lasting)
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="not a directory"):
        DirectoryDrive("wal", tmp_path / "file", lasting)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as another user")
def test_directory_that_the_server_cannot_reach(tmp_path: Path, lasting: Ledger) -> None:
    closed = tmp_path / "closed"
    (closed / "in").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(LabError, match=r"gets no access.*chmod"):
        DirectoryDrive("wal", closed / "in", lasting)


def machine_around(place: Path, root: Path, device: str) -> FakeMachine:
    """A made-up machine with two ATA disks: the system on one, the place on the device."""
    machine = FakeMachine(root)
    for number, name in enumerate(("sda", "sdb")):
        machine.scsi(name, f"8:{16 * number}", "ahci", "ATA", "ST3500413AS", number)
    machine.mount(Path("/"), "8:0", "ext4", "/dev/sda")
    machine.mount(place, device)
    return machine


def test_device_of_the_running_system(open_path: Path, tmp_path: Path, lasting: Ledger) -> None:
    machine = machine_around(open_path, tmp_path / "machine", "8:0")
    with pytest.raises(MachineError, match=r"sda, which holds the running system.*--root-device"):
        DeviceDrive("wal", open_path, lasting, machine.root)
    assert list(open_path.iterdir()) == []


def test_no_device_at_all(open_path: Path, tmp_path: Path, lasting: Ledger) -> None:
    machine = machine_around(open_path, tmp_path / "machine", "0:40")
    with pytest.raises(MachineError, match=r"not on a block device.*--drive directory"):
        DeviceDrive("wal", open_path, lasting, machine.root)


@pytest.fixture
def raid_volume(
    open_path: Path, tmp_path: Path, lasting: Ledger, monkeypatch: pytest.MonkeyPatch
) -> FakeMachine:
    """A machine on which the place is on a controller's volume, where it is put back, too."""
    machine = machine_around(open_path, tmp_path / "machine", "8:32")
    machine.scsi("sdc", "8:32", "megaraid_sas", "LSI", "MR9361-8i", 2)
    disks = blockdevice.every_disk(machine.root)
    monkeypatch.setattr(cacheswitch, "every_disk", lambda root: disks)
    return machine


def test_raid_volume_is_reported(
    open_path: Path, raid_volume: FakeMachine, lasting: Ledger
) -> None:
    machine = raid_volume
    with contextlib.closing(DeviceDrive("wal", open_path, lasting, machine.root)) as drive:
        for state in WRITE_CACHES:
            assert drive.unavailable(state)
        assert "megaraid_sas" in drive.unavailable("off")
        assert drive.write_cache() == {"drive": "unknown", "kernel": "write back"}
    parameters = realdrive.describe(open_path, machine.root)
    assert parameters["sdc.controller"] == "megaraid_sas"


def test_device_is_one_runs_at_a_time(
    open_path: Path, raid_volume: FakeMachine, lasting: Ledger
) -> None:
    machine = raid_volume
    with contextlib.closing(DeviceDrive("wal", open_path, lasting, machine.root)):
        other = Ledger.open(lasting=True)
        with pytest.raises(MachineError, match="sdc is in use by another run"):
            DeviceDrive("wal", open_path, other, machine.root)
        other.close()


def test_directories_of_the_command_line() -> None:
    both = ["wal", "data"]
    assert directories_of(("/x",), both) == {"wal": "/x", "data": "/x"}
    assert directories_of(("wal=/w", "data=/d"), both) == {"wal": "/w", "data": "/d"}
    assert directories_of(("/a=b",), both) == {"wal": "/a=b", "data": "/a=b"}
    for wrong in ((), ("wal=/w",), ("/x", "/y")):
        with pytest.raises(LabError, match=r"--directory .*(DIR|wal=DIR)"):
            directories_of(wrong, both)


def _cache(experiment: Experiment, cell: Cell) -> str:
    """The write cache of the data drive in the cell."""
    conditions = matrix.conditions(experiment, experiment.preset["quick"], cell)
    return conditions.drives["data"].write_cache


def test_experiment_on_a_directory() -> None:
    thread, _ = matrix.choose(matrix.read(), "thread", "quick")
    moved = matrix.on_real_drives(thread, "directory", {"wal": "/x", "data": "/x"})
    assert moved.axes["write_cache"] == ("as-is",)
    cells = matrix.cells(moved, moved.preset["quick"])
    before = matrix.cells(thread, thread.preset["quick"])
    assert {tuple(cell.values()) for cell in cells} == {
        (cell["variant"], "as-is", cell["sync"]) for cell in before
    }
    assert _cache(moved, cells[0]) == "as-is"


def test_experiment_on_a_device() -> None:
    thread, _ = matrix.choose(matrix.read(), "thread", "quick")
    cell = {"variant": "both", "write_cache": "off", "sync": "fsync"}
    apart = matrix.on_real_drives(thread, "device", {"wal": "/x", "data": "/y"})
    assert _cache(apart, cell) == "on"
    together = matrix.on_real_drives(thread, "device", {"wal": "/x", "data": "/x"})
    assert _cache(together, cell) == "off"


REAL = 'kind = "directory"\ndirectory = "/srv/x"'
SIMULATED = 'profile = "ata-2005"\nsize_mb = 512'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SIMULATED, 'kind = "device"', "drive.wal.directory: expected a directory"),
        (SIMULATED, f'{REAL}\nprofile = "ata-2005"', "drive.wal.profile: is for simulated"),
        (SIMULATED, f'{REAL}\nwrite_cache = "off"', "drive.wal.write_cache: that of a directory"),
        (SIMULATED, REAL, r'axes.write_cache: expected \["as-is"\]'),
        (SIMULATED, 'kind = "tape"', "kind"),
        (SIMULATED, f'{SIMULATED}\ndirectory = "/x"', "drive.wal.directory: is for kind"),
        ("size_mb = 512", "", "drive.wal.size_mb: expected the size"),
        ('write_cache = "on"', 'write_cache = "as-is"', "drive.data.write_cache: a simulated"),
    ],
)
def test_wrong_drives_in_the_matrix(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "matrix.toml"
    assert old in SMALL
    file.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(LabError, match=message):
        matrix.read(file)


@pytest.fixture
def loop_directory(open_path: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A directory on a file system on a loop device of its own; and that device's write_cache."""
    image = tmp_path / "image"
    with image.open("wb") as stream:
        stream.truncate(1 << 30)
    attach = ["losetup", "--find", "--show", str(image)]
    device = subprocess.run(attach, capture_output=True, text=True, check=True).stdout.strip()
    belief = Path("/sys/block") / Path(device).name / "queue" / "write_cache"
    try:
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        subprocess.run(["mount", device, open_path], check=True)
        try:
            yield open_path, belief
        finally:
            subprocess.run(["umount", open_path], check=True)
    finally:
        belief.write_text("write back")
        subprocess.run(["losetup", "--detach", device], check=True)


@pytest.mark.stack
def test_cache_of_a_real_device(loop_directory: tuple[Path, Path], own_state: Path) -> None:
    """What a loop device has of a cache is the kernel's belief; that is really switched."""
    directory, belief = loop_directory
    owned = Ledger.open(lasting=True)
    drive = DeviceDrive("wal", directory, owned)
    assert "loop device" in drive.unavailable("off")
    assert drive.unavailable("on") == drive.unavailable("on-unflushed") == ""
    drive.set_write_cache("on-unflushed")
    assert belief.read_text() == "write through\n"
    assert flushes_of_a_sync(drive) == 0
    drive.set_write_cache("on")
    assert belief.read_text() == "write back\n"
    assert flushes_of_a_sync(drive) >= 1
    drive.set_write_cache("on-unflushed")
    drive.close()
    owned.close()
    assert belief.read_text() == "write back\n"
    assert list(own_state.iterdir()) == []
    assert [path.name for path in directory.iterdir()] == ["lost+found"]


def flushes_of_a_sync(drive: DeviceDrive) -> int:
    """How many flushes the kernel sends when a new file is synced."""
    drive.reset()
    with (drive.mount_point / f"file-{time.monotonic_ns()}").open("wb") as stream:
        stream.write(b"x" * 8192)
        stream.flush()
        os.fsync(stream.fileno())
    return drive.reading().counters["flushes"]


@pytest.mark.stack
def test_cache_is_put_back_after_a_kill(loop_directory: tuple[Path, Path]) -> None:
    directory, belief = loop_directory
    die_with(f"DeviceDrive('wal', Path({str(directory)!r}), Ledger.open(lasting=True))")
    assert belief.read_text() == "write through\n"
    done = run_lab("drive", "restore")
    assert done.returncode == 0, done.stderr
    assert "put the write cache of loop" in done.stdout
    assert belief.read_text() == "write back\n"
    assert [path.name for path in directory.iterdir()] == ["lost+found"]
    assert "nothing was left behind" in run_lab("drive", "restore").stderr


def run_lab(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of the lab's commands."""
    return subprocess.run(
        [paths.LAB / "scripts" / command, *arguments], capture_output=True, text=True, timeout=900
    )


@pytest.mark.stack
@pytest.mark.usefixtures("servers")
def test_run_on_a_device(loop_directory: tuple[Path, Path], tmp_path: Path) -> None:
    directory, belief = loop_directory
    ran = run_small(SMALL, tmp_path, "--drive", "device", "--directory", directory)
    assert "is a loop device, which has no cache of its own" in ran.table
    samples = {sample.cell["write_cache"]: sample for sample in ran.samples}
    assert set(samples) == {"on", "on-unflushed"}
    assert samples["on"].write_cache["wal"] == {"drive": "on", "kernel": "write back"}
    assert samples["on"].drive["wal"].counters["flushes"] > 0
    assert samples["on-unflushed"].write_cache["wal"] == {"drive": "on", "kernel": "write through"}
    assert samples["on-unflushed"].drive["wal"].counters["flushes"] == 0
    assert belief.read_text() == "write back\n"
    assert [path.name for path in directory.iterdir()] == ["lost+found"]


@pytest.mark.stack
def test_run_in_a_directory_without_root(
    home: Path, servers: dict[str, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another user, with no right but to use the checkout's and the cache's files."""
    if not Confinement().can_run(servers["stock"].path):
        pytest.skip("the checkout is where other users cannot reach it")
    (home / "place").mkdir()
    subprocess.run(["chown", "-R", "wallab", home], check=True)
    for name in ("runtime", "state"):
        monkeypatch.setenv(f"WALLAB_{name.upper()}", str(home / name))
    rights = "+dac_override"
    as_user = ["setpriv", "--reuid=wallab", "--regid=wallab", "--clear-groups",
               f"--inh-caps={rights}", f"--ambient-caps={rights}"]  # fmt: skip
    place = home / "place"
    ran = run_small(SMALL, home, "--drive", "directory", "--directory", place, enter=as_user)
    (sample,) = ran.samples
    assert sample.cell["write_cache"] == "as-is"
    assert ran.plan.drives["wal"]["directory"] == str(place)
    for folder in ("place", "runtime", "state"):
        assert list((home / folder).iterdir()) == []
