"""What is mounted, told by a table that stands in for the kernel's, and unmounted there alone.

No program runs, so that these tests take no rights, and mistakes in the lab do no harm.
"""

import errno
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wallab.errors import MachineError
from wallab.machine import mounts
from wallab.machine.loop import Attached
from wallab.machine.mounts import Mounted, MountsBelow

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:26 / /run rw,nosuid shared:5 - tmpfs tmpfs rw,size=1g
40 30 8:1 /srv /run/lab/a rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
41 40 7:3 / /run/lab/a/b\\040c ro,noatime shared:9 master:2 - xfs /dev/loop3 rw,attr2
42 30 7:4 / /run/lab-2 rw - ext4 /dev/loop4 ro
43 42 0:50 /sub /run/lab-2 rw,noatime - btrfs /dev/loop4 rw,subvol=/sub
44 30 0:51 / /run/no-source rw - tmpfs  rw
"""


class Machine:
    """A table of mounts, and the programs that change it; every command is kept."""

    def __init__(self) -> None:
        self.table = TABLE
        self.commands: list[list[str]] = []
        self.busy = 0
        """How often umount says that the place is in use."""
        self.fails: set[str] = set()

    def read(self, file: str | Path = "/proc/self/mountinfo") -> list[mounts.Mount]:
        """What is mounted."""
        assert str(file) == "/proc/self/mountinfo"
        return mounts.parse(self.table)

    def run(self, command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        """Answer as mount and umount do."""
        self.commands.append(command)
        # What they say is the lab's to tell, and nobody is to answer them.
        assert options.pop("capture_output") is True
        if command[0] != "modprobe":
            assert options.pop("text") is True
        if command[0] == "mount" or "--lazy" in command:
            assert options.pop("stdin") == subprocess.DEVNULL
        assert options == {}
        if command[0] in self.fails:
            return subprocess.CompletedProcess(command, 32, "", f" {command[0]}: no \n")
        if command[0] == "umount":
            if "--lazy" not in command and self.busy:
                self.busy -= 1
                return subprocess.CompletedProcess(command, 32, "", "umount: in use\n")
            place = command[-1].replace(" ", "\\040")
            lines = self.table.splitlines(keepends=True)
            ours = [line for line in lines if line.split()[4] == place]
            lines.remove(ours[-1])
            self.table = "".join(lines)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """That one instead of this one."""
    stand_in = Machine()
    monkeypatch.setattr(mounts, "table", stand_in.read)
    monkeypatch.setattr(mounts.subprocess, "run", stand_in.run)  # type: ignore[attr-defined]
    return stand_in


def test_a_line_of_the_table() -> None:
    mount = mounts.parse(TABLE)[3]
    assert mount == mounts.Mount(
        Path("/run/lab/a/b c"), "7:3", ("ro", "noatime"), "xfs", "/dev/loop3", ("rw", "attr2")
    )
    assert mounts.parse(TABLE)[-1].source == ""
    (mount,) = mounts.parse("22 1 0:9 / /x rw - overlay none rw,lowerdir=/a - b,x=y z\n")
    assert (mount.filesystem, mount.source) == ("overlay", "none")
    assert mount.own_options == ("rw", "lowerdir=/a - b", "x=y z")
    assert mounts.unescape(r"a\134\011b\0") == "a\\\tb\\0"


def test_the_table_is_that_of_a_process(tmp_path: Path) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(TABLE)
    assert mounts.table(file) == mounts.parse(TABLE)
    assert mounts.table() == mounts.parse(Path("/proc/self/mountinfo").read_text())


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (3, ("ro", "noatime", "attr2")),  # by the mount
        (4, ("ro",)),  # by the file system
        (5, ("rw", "noatime", "subvol=/sub")),
    ],
)
def test_options_are_of_both(number: int, options: tuple[str, ...]) -> None:
    assert mounts.parse(TABLE)[number].all_options() == options


@pytest.mark.usefixtures("machine")
def test_the_last_mount_at_a_point_is_on_top() -> None:
    assert mounts.kind(Path("/run/lab-2")) == "btrfs"
    assert mounts.options(Path("/run/lab-2")) == ("rw", "noatime", "subvol=/sub")
    assert mounts.at(Path("/run/lab-3")) is None
    assert mounts.kind(Path("/run/lab-3")) == ""
    assert mounts.options(Path("/run/lab-3")) == ()


@pytest.mark.usefixtures("machine")
def test_what_is_mounted_below_a_folder() -> None:
    """The folder's own mount counts, others' whose names begin like it do not."""
    assert mounts.below(Path("/run/lab")) == [Path("/run/lab/a/b c"), Path("/run/lab/a")]
    assert mounts.below(Path("/run/lab/a/b c")) == [Path("/run/lab/a/b c")]
    assert mounts.below(Path("/run/lab/nothing")) == []


def test_links_above_a_folder_are_followed(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    machine.table += f"50 22 0:60 / {tmp_path}/real/x rw - tmpfs none rw\n"
    assert mounts.below(tmp_path / "link" / "x") == [tmp_path / "real" / "x"]


def test_a_folder_of_the_labs_is_cleared_of_mounts(machine: Machine) -> None:
    line = MountsBelow(Path("/run/lab")).undo()
    assert line == "unmounted /run/lab/a/b c; unmounted /run/lab/a"
    assert machine.commands == [
        ["umount", "--lazy", "/run/lab/a/b c"],
        ["umount", "--lazy", "/run/lab/a"],
    ]
    assert MountsBelow(Path("/run/lab")).undo() == ""
    assert len(machine.commands) == 2


# A drive's mount.

DEVICES = {"loop3": "7:3", "loop4": "7:4"}


@pytest.fixture(autouse=True)
def attached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """The loop devices that still hold what they held, with their numbers in a /sys."""
    held = set(DEVICES)
    for name, number in DEVICES.items():
        (tmp_path / "sys" / name).mkdir(parents=True)
        (tmp_path / "sys" / name / "dev").write_text(f"{number}\n")
    monkeypatch.setattr(Attached, "holds", lambda loop: loop.device.name in held)

    def path(*parts: str) -> Path:
        return tmp_path / "sys" if parts == ("/sys/block",) else Path(*parts)

    monkeypatch.setattr(mounts, "Path", path)
    return held


def drive(name: str, point: str, filesystem: str = "xfs") -> Mounted:
    """A drive's file system."""
    loop = Attached(Path("/dev") / name, "x", 1, "write back", 0)
    return Mounted(Path(point), filesystem, loop)


def test_a_drive_is_told_by_its_device(machine: Machine, attached: set[str]) -> None:
    assert machine.commands == []
    assert drive("loop3", "/run/lab/a/b c").device() == "7:3"
    assert drive("loop3", "/run/lab/a/b c").is_on_top()
    # The device of what is there, and the point of that device, are others.
    assert not drive("loop4", "/run/lab/a/b c").is_on_top()
    assert not drive("loop3", "/run/lab").is_on_top()
    attached.clear()
    assert drive("loop3", "/run/lab/a/b c").device() == ""
    assert not drive("loop3", "/run/lab/a/b c").is_on_top()


@pytest.mark.usefixtures("machine")
def test_btrfs_is_told_by_its_source(attached: set[str]) -> None:
    """The kernel gives each a number of its own."""
    assert drive("loop4", "/run/lab-2", "btrfs").is_on_top()
    assert not drive("loop3", "/run/lab-2", "btrfs").is_on_top()
    attached.remove("loop4")
    assert not drive("loop4", "/run/lab-2", "btrfs").is_on_top()


def test_a_covered_drive_is_left_alone(machine: Machine) -> None:
    machine.table += "45 43 0:70 / /run/lab-2 rw - tmpfs none rw\n"
    covered = drive("loop4", "/run/lab-2", "ext4")
    for act in (covered.is_on_top, covered.undo, covered.unmount):
        with pytest.raises(
            MachineError,
            match=r"/run/lab-2: none \(tmpfs\) is mounted over the drive: unmount that first",
        ):
            act()
    assert machine.commands == []


def test_a_drive_is_unmounted(machine: Machine) -> None:
    mounted = drive("loop3", "/run/lab/a/b c")
    assert mounted.undo() == "unmounted /run/lab/a/b c"
    assert machine.commands == [["umount", "--lazy", "/run/lab/a/b c"]]
    assert mounted.undo() == ""
    mounted.unmount()
    assert len(machine.commands) == 1


def test_a_drive_is_mounted(machine: Machine) -> None:
    drive("loop3", "/run/x").mount("noatime,nobarrier")
    drive("loop4", "/run/y", "ext4").mount()
    mounts.mount(Path("/dev/loop5"), Path("/run/z"), "ext4")
    assert machine.commands == [
        ["mount", "-t", "xfs", "-o", "noatime,nobarrier", "/dev/loop3", "/run/x"],
        ["mount", "-t", "ext4", "/dev/loop4", "/run/y"],
        ["mount", "-t", "ext4", "/dev/loop5", "/run/z"],
    ]


# Unmounting.


def test_users_of_a_mount_may_take_their_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(mounts.time, "sleep", slept.append)  # type: ignore[attr-defined]
    machine.busy = 3
    mounts.unmount(Path("/run/lab/a/b c"))
    assert machine.commands == [["umount", "/run/lab/a/b c"]] * 4
    assert slept == [0.02] * 3
    mounts.unmount(Path("/run/lab/a/b c"))  # it is not there any more
    mounts.unmount(Path("/run/lab"))  # only others' are
    assert len(machine.commands) == 4


def test_patience_has_an_end(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 5))
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr(mounts, "time", clock)
    machine.busy = 1000
    with pytest.raises(MachineError, match=r"^/run/lab/a/b c was busy for 20 s: umount: in use$"):
        drive("loop3", "/run/lab/a/b c").unmount()
    assert machine.commands[-1] == ["umount", "--lazy", "/run/lab/a/b c"]
    assert [command[1] for command in machine.commands[:-1]] == ["/run/lab/a/b c"] * 5
    assert mounts.at(Path("/run/lab/a/b c")) is None


def test_patience_where_none_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 5))
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr(mounts, "time", clock)
    machine.busy = 1000
    with pytest.raises(MachineError, match="was busy for 20 s"):
        mounts.unmount(Path("/run/lab/a"))


def test_what_a_program_says_is_told(machine: Machine) -> None:
    machine.fails = {"mount"}
    with pytest.raises(MachineError, match=r"^mount -t xfs /dev/loop3 /run/x: mount: no$"):
        drive("loop3", "/run/x").mount()


def test_a_folder_is_shown_read_only(machine: Machine) -> None:
    mounts.bind(Path("/opt/x"), Path("/run/x"))
    assert machine.commands == [
        ["mount", "--bind", "/opt/x", "/run/x"],
        ["mount", "-o", "remount,bind,ro", "/run/x"],
    ]


# A namespace of one's own.


class Kernel:
    """The two calls, and what they answer."""

    def __init__(self, refused: str = "") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._refused = refused

    def unshare(self, flags: int) -> int:
        """Note it."""
        self.calls.append(("unshare", flags))
        return -(self._refused == "unshare")

    def mount(self, *arguments: Any) -> int:
        """Note it."""
        self.calls.append(("mount", *arguments))
        return -(self._refused == "mount")


@pytest.mark.parametrize("read_only", [True, False])
def test_a_namespace_of_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    kernel = Kernel()
    monkeypatch.setattr(mounts, "_LIBC", kernel)
    looked: list[str] = []

    def statvfs(place: str) -> SimpleNamespace:
        looked.append(place)
        return SimpleNamespace(f_flag=1 if read_only else 2)

    monkeypatch.setattr(mounts.os, "statvfs", statvfs)  # type: ignore[attr-defined]
    mounts.enter_private_namespace()
    # CLONE_NEWNS, then MS_REC | MS_SLAVE, so that nothing that is mounted there comes here.
    assert kernel.calls == [("unshare", 0x20000), ("mount", None, b"/", None, 0x84000, None)]
    assert looked == ["/sys"]
    remounted = [["mount", "-o", "remount,bind,rw", "/sys"]]
    assert machine.commands == (remounted if read_only else [])


@pytest.mark.parametrize("refused", ["unshare", "mount"])
def test_no_namespace(machine: Machine, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    monkeypatch.setattr(mounts, "_LIBC", Kernel(refused))
    monkeypatch.setattr(mounts.ctypes, "get_errno", lambda: errno.EPERM)  # type: ignore[attr-defined]
    with pytest.raises(MachineError, match=r"\(Operation not permitted\).*--cap-add SYS_ADMIN"):
        mounts.enter_private_namespace()
    assert machine.commands == []


# What the kernel can mount.


def test_file_systems_of_the_kernel(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = tmp_path / "filesystems"
    known.write_text("nodev\ttmpfs\n\text4\n\txfs_2\n")
    monkeypatch.setattr(
        mounts, "Path", lambda name: known if name == "/proc/filesystems" else Path(name)
    )
    assert mounts.kernel_knows("ext4")
    assert machine.commands == []
    for name in ("xfs", "tmpfs", "ext", ".*"):
        assert not mounts.kernel_knows(name)
        assert machine.commands.pop() == ["modprobe", name]

    def load(command: list[str], **options: Any) -> None:
        known.write_text(f"{known.read_text()}\t{command[1]}\n")

    monkeypatch.setattr(mounts.subprocess, "run", load)  # type: ignore[attr-defined]
    assert mounts.kernel_knows("xfs")

    def lacking(command: list[str], **options: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(mounts.subprocess, "run", lacking)  # type: ignore[attr-defined]
    assert not mounts.kernel_knows("btrfs")
