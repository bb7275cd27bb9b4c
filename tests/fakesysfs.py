"""A made-up machine: /sys and /proc below a folder, laid out as the kernel does it.

The tools that switch the caches of its disks are made up, too.
"""

from pathlib import Path

import pytest

# Each keeps the bit in the file $BIT, notes its arguments in $BIT.calls, and answers in the words
# of the real one; with $BIT.stuck it says that all is well and does nothing.
TOOLS = {
    "hdparm": r"""
case $1 in -W0) set_bit 0 ;; -W1) set_bit 1 ;; esac
printf '\n%s:\n' "$2"
case $1 in -W[01]) printf ' setting drive write-caching to %s\n' "${1#-W}" ;; esac
printf ' write-caching =  %s (%s)\n' "$(cat "$BIT")" x
""",
    "sdparm": r"""
case $1 in --clear=WCE) set_bit 0 ;; --set=WCE) set_bit 1 ;; esac
printf '    %s: QEMU      QEMU HARDDISK     2.5+\n' "$2"
test "$1" = --get=WCE || exit 0
printf 'WCE           %s  [cha: y, def:  1, sav:  1]\n' "$(cat "$BIT")"
exit 5
""",
    "nvme": r"""
case $1 in set-feature)
    case $2 in *n[0-9]) echo 'NVMe status: Feature Not Namespace Specific' >&2; exit 1 ;; esac
    set_bit "$6"
    printf 'set-feature:0x06 (Volatile Write Cache), value:%#.8x, cdw12:00000000, save:0\n' "$6"
    exit 0
esac
printf 'get-feature:0x06 (Volatile Write Cache), Current value:%#.8x\n' "$(cat "$BIT")"
""",
}


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put made-up tools first on PATH; return the file with the bit that they show and set."""
    file = folder / "bit"
    file.write_text("1")
    tools = folder / "tools"
    tools.mkdir()
    for name, body in TOOLS.items():
        tool = tools / name
        tool.write_text(
            '#!/bin/sh\nset_bit() { test -e "$BIT.stuck" || echo "$1" >"$BIT"; }\n'
            f'echo {name} "$@" >>"$BIT.calls"\n{body}'
        )
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/sbin:/usr/bin:/sbin:/bin")
    monkeypatch.setenv("BIT", str(file))
    return file


class FakeMachine:
    """Block devices and mounts below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._mounts: list[str] = []
        (root / "proc/self").mkdir(parents=True)
        for folder in ("block", "class/block", "dev/block", "fs/btrfs"):
            (root / "sys" / folder).mkdir(parents=True)

    def write(self, file: Path, text: str) -> None:
        """Write a file of sysfs, which ends in a newline."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def device(
        self, name: str, number: str, parent: str, cache: str = "write back", **files: str
    ) -> Path:
        """Make a whole device, in sys/devices/PARENT/block; files: path with __ for / -> text."""
        above = self.root / "sys/devices" / parent
        folder = above / "block" / name
        self.write(folder / "dev", number)
        self.write(folder / "queue/write_cache", cache)
        self.write(folder / "queue/rotational", "1")
        self.write(folder / "stat", "9 0 72 1 5 0 40 1 0 1 2 0 0 0 0 3 1")
        (folder / "slaves").mkdir()
        if "virtual" not in parent:
            (folder / "device").symlink_to("../..")
        for path, text in files.items():
            self.write(folder / path.replace("__", "/"), text)
        self._link(folder, name, number)
        (self.root / "sys/block" / name).symlink_to(folder)
        return folder

    def _link(self, folder: Path, name: str, number: str) -> None:
        (self.root / "sys/dev/block" / number).symlink_to(folder)
        (self.root / "sys/class/block" / name).symlink_to(folder)

    def partition(self, disk: Path, name: str, number: str) -> Path:
        """Make a partition of the disk."""
        folder = disk / name
        self.write(folder / "partition", "1")
        self.write(folder / "dev", number)
        self._link(folder, name, number)
        return folder

    def scsi(
        self, name: str, number: str, driver: str, vendor: str, model: str, place: int
    ) -> Path:
        """Make a SCSI or ATA disk behind a host with that driver."""
        host = f"pci0000:00/0000:00:1f.2/host{place}"
        address = f"{place}:0:0:0"
        self.write(self.root / f"sys/devices/{host}/scsi_host/host{place}/proc_name", driver)
        return self.device(
            name,
            number,
            f"{host}/target{place}:0:0/{address}",
            device__vendor=f"{vendor:8}",
            device__model=f"{model:16}",
            device__rescan="",
            device__wwid=f"naa.5000c500{place:08x}",
            **{f"device__scsi_disk__{address}__cache_type": "write back"},
        )

    def nvme(self, name: str, number: str) -> Path:
        """Make an NVMe namespace."""
        controller = "pci0000:00/0000:01:00.0/nvme/nvme0"
        self.write(self.root / "sys/devices" / controller / "model", "INTEL SSDPE2KX010T8")
        return self.device(name, number, controller, wwid="eui.01000000000000005cd2e4")

    def nvme_paths(self, name: str, number: str, controllers: int) -> Path:
        """Make an NVMe namespace that several controllers lead to."""
        subsystem = "pci/nvme-subsystem/nvme-subsys0"
        for place in range(controllers):
            self.write(self.root / f"sys/devices/{subsystem}/nvme{place}/state", "live")
        return self.device(name, number, subsystem, wwid="eui.01000000000000005cd2e4")

    def virtio(self, name: str, number: str, *, switchable: bool) -> Path:
        """Make the disk of a guest, whose host lets it switch the cache or not."""
        folder = self.device(
            name,
            number,
            "pci0000:00/0000:00:02.0/virtio1",
            cache_type="write back",
            serial=f"disk-{name}",
            device__vendor="0x1af4",
        )
        (folder / "cache_type").chmod(0o644 if switchable else 0o444)
        return folder

    def made_of(self, name: str, number: str, *parts: Path, cache: str = "write back") -> Path:
        """Make an md or dm device of these."""
        folder = self.device(name, number, "virtual", cache)
        for part in parts:
            (folder / "slaves" / part.name).symlink_to(part)
        return folder

    def mount(self, point: Path, number: str, filesystem: str = "xfs", source: str = "x") -> None:
        """Mount the device there."""
        self._mounts.append(
            f"{len(self._mounts)} 1 {number} / {point} rw,relatime shared:1 - "
            f"{filesystem} {source} rw,attr2"
        )
        self.write(self.root / "proc/self/mountinfo", "\n".join(self._mounts))
