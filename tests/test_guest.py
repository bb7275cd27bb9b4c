"""Write caches of disks on a real kernel, by the real tools: what the drives below then see.

The lab's own code runs in a guest; its disks are simulated drives, which count FUA and flushes.
"""

import contextlib
import functools
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import guest
import guestfiles
import nbdserver
import pytest
from guest import Guest, GuestError

from wallab.drives import simulated
from wallab.drives.control import DriveControl
from wallab.virtual.packages import NotToBeHad

pytestmark = pytest.mark.stack

SWITCHED = ("ata", "scsi", "nvme", "virtio")

# What shows a disk's cache without the lab's code, and what it says with the cache off and on.
SHOWN = {
    "ata": (["hdparm", "-W", "/dev/{}"], " write-caching =  0 (off)", " write-caching =  1 (on)"),
    "scsi": (["sh", "-c", "sdparm --get=WCE /dev/{}; true"], "WCE           0", "WCE           1"),
    "nvme": (["nvme", "get-feature", "/dev/nvme0", "-f", "6"], ":00000000", ":0x00000001"),
    "virtio": (["cat", "/sys/block/{}/cache_type"], "write through", "write back"),
}


class Bench:
    """The guest, and the drives under its disks by the disks' names here."""

    def __init__(self, booted: Guest, drives: dict[str, DriveControl]) -> None:
        self.guest = booted
        self.drives = drives
        names = {disk["bytes"]: disk["name"] for disk in booted.ask("disks")}
        self.names = {name: names[int(drives[name].ask("state")["size"])] for name in drives}
        """Disk -> its name in the guest."""

    def counted(self, action: Callable[[], object], *disks: str) -> dict[str, int]:
        """Return what the drives of the disks count during an action."""
        for disk in disks:
            self.drives[disk].ask("reset")
        action()
        total: dict[str, int] = {}
        for disk in disks:
            for key, value in self.drives[disk].reading().counters.items():
                total[key] = total.get(key, 0) + value
        return total

    @contextlib.contextmanager
    def files(self, name: str, device: str) -> Iterator[str]:
        """Make a file system on a device of the guest; yield where it is mounted."""
        directory = f"/run/{name}"
        self.guest.run("mkdir", directory)
        self.guest.run(*simulated.FILE_SYSTEMS["ext4"], f"/dev/{device}")
        self.guest.run("mount", "-t", "ext4", f"/dev/{device}", directory)
        try:
            yield directory
        finally:
            self.guest.run("umount", directory)
            self.guest.run("rmdir", directory)

    @contextlib.contextmanager
    def opened(self, name: str, device: str) -> Iterator[str]:
        """The same, taken by the lab as a real drive."""
        with self.files(name, device) as directory:
            self.guest.ask("open", directory)
            try:
                yield directory
            finally:
                self.guest.ask("close", directory)
            assert "wal-lab" not in self.guest.run("ls", directory)


@pytest.fixture(scope="module")
def bench(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A guest with disks of all kinds."""
    for program in (guest.QEMU, "hdparm", "sdparm", "nvme", "dmsetup"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")
    try:
        files = guestfiles.fetch()
    except NotToBeHad as error:
        pytest.skip(f"no kernel for a guest: {error}")
    folder = tmp_path_factory.mktemp("guest")
    with contextlib.ExitStack() as stack:
        drives = {}
        for number, name in enumerate(guest.DISKS):
            (folder / name).mkdir()
            # Sizes tell them apart in the guest.
            settings = [f"size={64 + number}M", "write-cache=on"]
            drives[name] = stack.enter_context(nbdserver.serving(plugin, folder / name, *settings))
        sockets = {name: folder / name / "nbd" for name in drives}
        yield Bench(stack.enter_context(guest.running(files, sockets, folder)), drives)


def test_kinds_of_disks(bench: Bench) -> None:
    disks = {disk["name"]: disk for disk in bench.guest.ask("disks")}
    kinds = {name: disks[bench.names[name]]["kind"] for name in bench.names}
    assert kinds == {name: "virtio" if name == "virtio-fixed" else name for name in kinds}
    controllers = {name: disks[bench.names[name]]["controller"] for name in ("ata", "scsi", "raid")}
    assert controllers == {"ata": "ata_piix", "scsi": "virtio_scsi", "raid": "megaraid_sas"}


@pytest.mark.parametrize("disk", SWITCHED)
def test_drive_sees_what_was_switched(bench: Bench, disk: str) -> None:
    name = bench.names[disk]
    command, off, on = SHOWN[disk]
    command = [word.format(name) for word in command]
    before = bench.guest.ask("state", name)
    assert before == ["on", "write back"]
    with bench.opened(disk, name) as directory:

        def sync() -> None:
            bench.guest.ask("sync", directory)

        for state in ("off", "on", "on-unflushed", "off", "on"):
            cache = bench.guest.ask("set", directory, state)
            counters = bench.counted(sync, disk)
            assert counters["writes"] > 0
            if state == "off":
                assert cache == {"drive": "off", "kernel": "write through"}
                assert off in bench.guest.run(*command)
                assert (counters["flushes"], counters["fua_writes"]) == (0, counters["writes"])
            elif state == "on":
                assert cache == {"drive": "on", "kernel": "write back"}
                assert on in bench.guest.run(*command)
                assert counters["flushes"] > 0
                assert counters["fua_writes"] < counters["writes"]
            else:
                assert cache == {"drive": "on", "kernel": "write through"}
                assert on in bench.guest.run(*command)
                assert (counters["flushes"], counters["fua_writes"]) == (0, 0)
        bench.guest.ask("set", directory, "off")
    assert bench.guest.ask("state", name) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from wallab.machine.ledger import Ledger
from wallab.drives.real import DeviceDrive
ledger = Ledger.open(lasting=True)
for directory in sys.argv[1:]:
    DeviceDrive("killed", Path(directory), ledger).set_write_cache("off")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_put_back_after_a_kill(bench: Bench) -> None:
    with contextlib.ExitStack() as stack:
        directories = {
            disk: stack.enter_context(bench.files(disk, bench.names[disk])) for disk in SWITCHED
        }
        done = bench.guest.ask("run", sys.executable, "-c", KILLED, *directories.values())
        assert done["code"] == -9, done["stderr"]
        for disk, directory in directories.items():
            assert bench.guest.ask("state", bench.names[disk]) == ["off", "write through"]
            assert len(bench.guest.run("ls", directory).split()) == 2
        output = bench.guest.run(sys.executable, "-m", "wallab.command.drive", "restore")
        for disk, directory in directories.items():
            name = bench.names[disk]
            assert f"put the write cache of {name} back: on, write back" in output
            assert bench.guest.ask("state", name) == ["on", "write back"]
            command, _, on = SHOWN[disk]
            assert on in bench.guest.run(*(word.format(name) for word in command))
            assert bench.guest.run("ls", directory).split() == ["lost+found"]
            sync = functools.partial(bench.guest.ask, "sync", directory)
            assert bench.counted(sync, disk)["flushes"] > 0
        assert bench.guest.run("ls", guestfiles.STATE) == ""


def test_raid_volume_is_left_alone(bench: Bench) -> None:
    with bench.opened("raid", bench.names["raid"]) as directory:
        for state in ("off", "on", "on-unflushed"):
            reason = bench.guest.ask("unavailable", directory, state)
            assert "RAID controller (megaraid_sas)" in reason
        with pytest.raises(GuestError, match=r"RAID controller \(megaraid_sas\).*storcli"):
            bench.guest.ask("set", directory, "off")
        assert bench.guest.ask("state", bench.names["raid"]) == ["unknown", "write back"]


def test_host_that_does_not_let_its_guest_switch(bench: Bench) -> None:
    with bench.opened("virtio-fixed", bench.names["virtio-fixed"]) as directory:
        assert "whose host does not let it" in bench.guest.ask("unavailable", directory, "off")
        assert bench.guest.ask("unavailable", directory, "on-unflushed") == ""
        sync = "sync", directory
        for state, flushed in (("on-unflushed", False), ("on", True)):
            bench.guest.ask("set", directory, state)
            counters = bench.counted(lambda: bench.guest.ask(*sync), "virtio-fixed")
            assert counters["writes"] > 0
            assert (counters["flushes"] > 0) == flushed


BELOW_MB = 40
"""What each of two disks gives to a volume."""


@contextlib.contextmanager
def mapped(bench: Bench, disks: tuple[str, str]) -> Iterator[str]:
    """A volume of the device mapper, one disk behind the other, as LVM makes it."""
    sectors = BELOW_MB << 11
    table = "".join(
        f"{number * sectors} {sectors} linear /dev/{bench.names[disk]} 0\n"
        for number, disk in enumerate(disks)
    )
    # Nobody makes a name for it below /dev/mapper here.
    create = "dmsetup create volume --noudevsync --noudevrules"
    bench.guest.run("sh", "-c", f"printf %s '{table}' | {create}")
    try:
        yield "dm-0"
    finally:
        bench.guest.run("dmsetup", "remove", "--noudevsync", "--noudevrules", "volume")


@contextlib.contextmanager
def mirrored(bench: Bench, disks: tuple[str, str]) -> Iterator[str]:
    """A mirror of the kernel's md, made as mdadm --build does (Documentation/admin-guide/md)."""
    array = "md127"
    place = f"/sys/block/{array}/md"
    settings = [
        ("metadata_version", "none"),
        ("level", "raid1"),
        ("raid_disks", str(len(disks))),
        ("component_size", str(BELOW_MB << 10)),
    ]
    for number, disk in enumerate(disks):
        name = bench.names[disk]
        device = bench.guest.run("cat", f"/sys/block/{name}/dev").strip()
        settings += [("new_dev", device), (f"dev-{name}/slot", str(number))]
    settings += [("resync_start", "none"), ("array_state", "active")]
    bench.guest.run("sh", "-c", f"echo {array} > /sys/module/md_mod/parameters/new_array")
    try:
        for name, value in settings:
            bench.guest.run("sh", "-c", f"echo {value} > {place}/{name}")
        yield array
    finally:
        bench.guest.run("sh", "-c", f"echo clear > {place}/array_state")


@pytest.mark.parametrize("volume", [mapped, mirrored])
def test_disks_below_a_volume(
    bench: Bench,
    volume: Callable[[Bench, tuple[str, str]], contextlib.AbstractContextManager[str]],
) -> None:
    """Both disks are found and switched."""
    disks = "ata", "scsi"
    with volume(bench, disks) as device, bench.opened("volume", device) as directory:
        for state, flushed in (("off", False), ("on-unflushed", False), ("on", True)):
            cache = bench.guest.ask("set", directory, state)
            assert cache["drive"] == ("off" if state == "off" else "on")
            for disk in disks:
                assert bench.guest.ask("state", bench.names[disk])[0] == cache["drive"]
            counters = bench.counted(lambda: bench.guest.ask("sync", directory), *disks)
            assert (counters["flushes"] > 0) == flushed
            assert (counters["fua_writes"] == counters["writes"]) == (state == "off")
    for disk in disks:
        assert bench.guest.ask("state", bench.names[disk]) == ["on", "write back"]
