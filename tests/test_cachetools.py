"""What is asked of the tools that switch caches, and how their answers are read.

No program runs: what stands in for them takes exactly the arguments that the real ones take.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakedisks import ata, scsi
from fakesysfs import FakeMachine

from wallab.errors import MachineError
from wallab.machine import blockdevice, cacheswitch, provision
from wallab.machine.blockdevice import Disk
from wallab.machine.cacheswitch import CacheState

ATA = "/dev/sda:\n write-caching =  {} (x)\n"
SCSI = "    /dev/sdb: HP  EF0300FATFD\nWCE           {}  [cha: y, def:  1, sav:  1]\n"
NVME = "get-feature:0x06 (Volatile Write Cache), Current value:{}\n"


class Tools:
    """Answers to command lines; others are a mistake."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.calls: list[str] = []

    def run(self, command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        """Answer."""
        assert options == {
            "capture_output": True,
            "text": True,
            "stdin": subprocess.DEVNULL,
            "timeout": cacheswitch.PATIENCE,
        }
        self.calls.append(" ".join(command))
        return subprocess.CompletedProcess(command, 5, self.answers[self.calls[-1]], "")


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    """They, all of them installed."""
    made = Tools()
    monkeypatch.setattr(cacheswitch.subprocess, "run", made.run)  # type: ignore[attr-defined]
    monkeypatch.setattr(cacheswitch.shutil, "which", lambda name: f"/sbin/{name}")  # type: ignore[attr-defined]
    return made


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """A machine without disks."""
    return FakeMachine(tmp_path / "machine")


def nvme(machine: FakeMachine) -> Disk:
    """An NVMe namespace with two controllers."""
    return blockdevice.describe(machine.nvme_paths("nvme0n1", "259:0", 2))


def loop(machine: FakeMachine) -> Disk:
    """A loop device."""
    return blockdevice.describe(machine.device("loop0", "7:0", "virtual", cache="write through"))


def other(machine: FakeMachine) -> Disk:
    """A disk of a kind that nobody knows."""
    return blockdevice.describe(machine.device("mmcblk0", "179:0", "mmc0"))


Kind = Callable[[FakeMachine], Disk]
ASKED: dict[Kind, tuple[str, str, list[str]]] = {
    ata: ("hdparm -W /dev/sda", ATA, ["hdparm -W1 /dev/sda", "hdparm -W0 /dev/sda"]),
    scsi: (
        "sdparm --get=WCE /dev/sdb", SCSI,
        ["sdparm --set=WCE /dev/sdb", "sdparm --clear=WCE /dev/sdb"],
    ),
    nvme: (
        "nvme get-feature /dev/nvme0 -f 6", NVME,
        [f"nvme set-feature /dev/nvme{controller} -f 6 -v {on}"
         for on in (1, 0) for controller in (0, 1)],
    ),
}  # fmt: skip
"""Kind -> the question, its answer, and what switches on, then off."""


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize(("bit", "drive"), [("0", "off"), ("1", "on")])
def test_what_the_tool_says(
    machine: FakeMachine, tools: Tools, kind: Kind, bit: str, drive: str
) -> None:
    disk = kind(machine)
    question, words, _ = ASKED[kind]
    tools.answers[question] = words.format(bit)
    assert cacheswitch.state(disk).drive == drive
    assert tools.calls == [question]


@pytest.mark.parametrize("value", ["1", "0x1", "00000001", "0x00000001"])
def test_every_version_of_nvme_is_read(machine: FakeMachine, tools: Tools, value: str) -> None:
    disk = nvme(machine)
    tools.answers[ASKED[nvme][0]] = f"{NVME.format(value)}\tmore of it\n"
    assert cacheswitch.state(disk).drive == "on"
    tools.answers[ASKED[nvme][0]] = f"{NVME.format(value.replace('1', '0'))}\tmore of it\n"
    assert cacheswitch.state(disk).drive == "off"
    tools.answers[ASKED[nvme][0]] = NVME.format("0x00000010")  # which is no bit
    (disk.sysfs / "queue/write_cache").write_text("write through")
    assert cacheswitch.state(disk).drive == "off"


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("to", ["on", "off"])
def test_what_switches(
    machine: FakeMachine, tools: Tools, monkeypatch: pytest.MonkeyPatch, kind: Kind, to: str
) -> None:
    disk = kind(machine)
    question, words, switching = ASKED[kind]
    half = len(switching) // 2
    commands = switching[:half] if to == "on" else switching[half:]
    tools.answers |= dict.fromkeys(commands, "")
    answers = iter([words.format(int(to == "off")), words.format(int(to == "on"))])

    def answered(command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        if " ".join(command) == question:
            tools.answers[question] = next(answers)
        return tools.run(command, **options)

    monkeypatch.setattr(cacheswitch.subprocess, "run", answered)  # type: ignore[attr-defined]
    assert cacheswitch.set_to(disk, to, "write back") is True
    assert tools.calls == [question, *commands, question]


def test_nothing_is_switched_that_is_so(machine: FakeMachine, tools: Tools) -> None:
    disk = ata(machine)
    tools.answers[ASKED[ata][0]] = ATA.format(1)
    assert cacheswitch.set_to(disk, "on", "write back") is False
    assert tools.calls == [ASKED[ata][0]]
    assert cacheswitch.set_to(disk, "on", "write through") is True


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize(
    ("driver", "queue", "drive"),
    [
        ("write back", "write through", "on"),
        ("write through", "write back", "off"),
        ("", "write back", "on"),
        ("", "write through", "off"),
        ("", "", "unknown"),
    ],
)
def test_what_has_no_such_page_is_as_its_driver_says(
    machine: FakeMachine, tools: Tools, kind: Kind, driver: str, queue: str, drive: str
) -> None:
    disk = kind(machine)
    tools.answers[ASKED[kind][0]] = "this drive has none\n"
    for file in disk.sysfs.glob("device/scsi_disk/*/cache_type"):
        file.write_text(driver)
    if kind is nvme:  # whose driver says nothing but in the queue
        drive = {"write back": "on", "write through": "off", "": "unknown"}[queue]
    (disk.sysfs / "queue/write_cache").write_text(queue)
    assert cacheswitch.state(disk) == CacheState(disk.identity, disk.name, drive, queue)


def test_a_loop_device_has_the_page_cache(machine: FakeMachine, tools: Tools) -> None:
    disk = loop(machine)
    assert cacheswitch.state(disk) == CacheState("loop0", "loop0", "on", "write through")
    with pytest.raises(MachineError, match=r"^loop0 is a loop device, .*; it is on$"):
        cacheswitch.set_to(disk, "off", "write through")
    assert tools.calls == []


def test_what_nobody_knows_stays_as_it_is(machine: FakeMachine, tools: Tools) -> None:
    disk = other(machine)
    before = cacheswitch.state(disk)
    assert before == CacheState("mmcblk0", "mmcblk0", "unknown", "write back")
    with pytest.raises(MachineError, match=r"^mmcblk0 is of a kind .*; it is unknown$"):
        cacheswitch.set_to(disk, "off", "write through")
    assert cacheswitch.fixed(ata(machine)) == ""
    # The kernel's belief is put back all the same.
    (disk.sysfs / "queue/write_cache").write_text("write through")
    assert cacheswitch.put_back(before, machine.root) == (
        "put the write cache of mmcblk0 back: unknown, write back"
    )
    assert cacheswitch.state(disk) == before
    assert tools.calls == []


def test_every_name_of_a_disk_is_told(machine: FakeMachine, tools: Tools) -> None:
    """A disk that was found under other names has what was noted put back under each."""
    for place, (name, number) in enumerate((("sda", "8:0"), ("sdc", "8:32"))):
        folder = machine.scsi(name, number, "ahci", "ATA", "ST3500413AS", place)
        machine.write(folder.resolve().parents[1] / "wwid", "naa.the-same")
        tools.answers[f"hdparm -W /dev/{name}"] = ATA.format(1)
    assert cacheswitch.put_back(CacheState("naa.the-same", "sdz", "on", "write through"),
                                machine.root) == (
        "put the write cache of sda back: on, write through; "
        "put the write cache of sdc back: on, write through"
    )  # fmt: skip


def test_of_several_names_the_one_that_was_noted(machine: FakeMachine, tools: Tools) -> None:
    """Each has been noted with a belief of its own."""
    for place, (name, number) in enumerate((("sda", "8:0"), ("sdc", "8:32"))):
        folder = machine.scsi(name, number, "ahci", "ATA", "ST3500413AS", place)
        machine.write(folder.resolve().parents[1] / "wwid", "naa.the-same")
        tools.answers[f"hdparm -W /dev/{name}"] = ATA.format(1)
    for name in ("sda", "sdc"):
        before = CacheState("naa.the-same", name, "on", "write through")
        assert cacheswitch.put_back(before, machine.root) == (
            f"put the write cache of {name} back: on, write through"
        )


def test_what_could_not_be_read_is_not_switched(machine: FakeMachine, tools: Tools) -> None:
    """Although it can be read by now."""
    disk = ata(machine)
    tools.answers[ASKED[ata][0]] = ATA.format(0)
    (disk.sysfs / "queue/write_cache").write_text("write through")
    before = CacheState(disk.identity, "sda", "unknown", "write back")
    assert cacheswitch.put_back(before, machine.root) == (
        "put the write cache of sda back: off, write back"
    )
    assert set(tools.calls) == {ASKED[ata][0]}


def test_what_is_noted_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = CacheState("naa.1", "sda", "on", "write back")
    monkeypatch.setattr(cacheswitch, "put_back", {noted: "done"}.__getitem__)
    assert noted.undo() == "done"


@pytest.mark.parametrize("mode", [0o400, 0o444, 0o201, 0o601])
def test_the_mode_of_the_file_tells_what_a_guest_may(machine: FakeMachine, mode: int) -> None:
    disk = blockdevice.describe(machine.virtio("vda", "254:0", switchable=False))
    (disk.sysfs / "cache_type").chmod(mode)
    assert bool(cacheswitch.fixed(disk)) is not bool(mode & 0o200)
    if not mode & 0o200:
        (disk.sysfs / "cache_type").chmod(mode | 0o101)
        assert cacheswitch.fixed(disk) != ""
    (disk.sysfs / "cache_type").unlink()
    assert cacheswitch.fixed(disk) != ""


def test_what_does_not_take_is_told(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = loop(machine)
    file = disk.sysfs / "queue/write_cache"
    written: list[tuple[Path, str]] = []
    monkeypatch.setattr(cacheswitch, "_write", lambda *call: written.append(call))
    with pytest.raises(MachineError, match=rf"^{file} stays “write through”, not “write back”$"):
        cacheswitch.set_to(disk, "on", "write back")
    assert written == [(file, "write back")]


def test_what_cannot_be_written_is_told(machine: FakeMachine) -> None:
    disk = loop(machine)
    file = disk.sysfs / "queue/write_cache"
    file.unlink()
    file.mkdir()
    with pytest.raises(MachineError, match=rf"^{file}: “write back”: Is a directory$"):
        cacheswitch.set_to(disk, "on", "write back")


def test_namespace_without_a_controller(machine: FakeMachine, tools: Tools) -> None:
    disk = blockdevice.describe(machine.device("nvme0n1", "259:0", "pci/nothing"))
    with pytest.raises(MachineError, match=r"^nvme0n1: no NVMe controller is known for it$"):
        cacheswitch.state(disk)
    assert tools.calls == []


def test_tool_that_is_not_installed(
    machine: FakeMachine, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = scsi(machine)
    tools.answers[ASKED[scsi][0]] = SCSI.format(1)
    looked: list[str] = []
    monkeypatch.setattr(cacheswitch.shutil, "which", looked.append)  # type: ignore[attr-defined]
    wanted: list[dict[str, str]] = []
    monkeypatch.setattr(provision, "install", wanted.append)
    cacheswitch.state(disk)
    assert (looked, wanted) == (["sdparm"], [{"sdparm": "sdparm"}])

    def refuse(packages: dict[str, str]) -> None:
        raise provision.SetupError("no apt here")

    monkeypatch.setattr(provision, "install", refuse)
    with pytest.raises(MachineError, match=r"^sdb: sdparm: no apt here$"):
        cacheswitch.state(disk)


@pytest.mark.parametrize("error", [OSError("gone"), subprocess.TimeoutExpired("hdparm", 60)])
def test_tool_that_does_not_answer(
    machine: FakeMachine, tools: Tools, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert tools.calls == []

    def fail(command: list[str], **options: Any) -> None:
        raise error

    monkeypatch.setattr(cacheswitch.subprocess, "run", fail)  # type: ignore[attr-defined]
    with pytest.raises(MachineError, match=r"^sda: hdparm: "):
        cacheswitch.state(ata(machine))
