"""QEMU as this machine has it: installed, or unpacked into the cache for who may not install."""

import hashlib
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from wallab.errors import MachineError
from wallab.files.digest import sha256
from wallab.machine import provision
from wallab.virtual import packages
from wallab.virtual.packages import NotToBeHad

PROGRAM = "qemu-system-x86_64"
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
"""What a guest sees the work of."""

_FIRMWARE = ("bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin")
"""What the guest's processor runs before its kernel, and beside."""
_FOLDERS = ("qemu", "seabios")


class Qemu(msgspec.Struct, frozen=True):
    """A QEMU that can be started."""

    program: Path
    environment: dict[str, str]
    """What it takes to find its libraries; its own files it finds beside its program."""
    versions: dict[str, str]
    """Of its packages; empty where they are no Debian ones."""

    @property
    def sha256(self) -> str:
        """The digest of the program and of what it loads to run instructions."""
        modules = self.program.resolve().parents[1] / "lib"
        engines = sorted(modules.glob(f"{platform.machine()}-linux-gnu/qemu/accel-tcg-*.so"))
        digests = map(sha256, (self.program, *engines))
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    @property
    def firmware(self) -> str:
        """The digest of the firmware that it gives to its guests."""
        share = self.program.resolve().parents[1] / "share"
        files = [
            next((place for folder in _FOLDERS if (place := share / folder / name).exists()), None)
            for name in _FIRMWARE
        ]
        return hashlib.sha256("".join(sha256(f) if f else "-" for f in files).encode()).hexdigest()


def find(versions: Mapping[str, str] | None = None) -> Qemu:
    """Return the QEMU of this machine, or the one of these packages; MachineError says what helps.

    Root has it installed where it is missing, others have it unpacked.
    """
    wanted = {name: version for name, version in (versions or {}).items() if name in PACKAGES}
    if (installed := _installed()) and _is(installed, wanted):
        return installed
    install = f"as root, run: apt-get install {PACKAGES[0]}"
    if not installed and not wanted and os.geteuid() == 0:
        try:
            provision.install({PACKAGES[0]: PROGRAM})
        except provision.SetupError as error:
            raise MachineError(f"the virtual machine takes QEMU: {error}") from None
        if installed := _installed():
            return installed
        raise MachineError(f"the virtual machine takes {PROGRAM}, which is not on PATH")
    try:
        return _unpacked(wanted)
    except NotToBeHad as error:
        raise MachineError(
            f"the virtual machine takes QEMU, which cannot be fetched ({error}); {install}"
        ) from None


def _is(qemu: Qemu, wanted: Mapping[str, str]) -> bool:
    return all(qemu.versions.get(name) == version for name, version in wanted.items())


def _installed() -> Qemu | None:
    program = shutil.which(PROGRAM)
    return Qemu(Path(program), {}, packages.installed(PACKAGES)) if program else None


def _unpacked(wanted: Mapping[str, str]) -> Qemu:
    unpacked = packages.kept("qemu", PACKAGES, wanted)
    program = unpacked.program(PROGRAM)
    if program is None:
        raise NotToBeHad(f"{PACKAGES[0]} has no {PROGRAM} for {platform.machine()}")
    versions = {name: unpacked.versions[name] for name in PACKAGES}
    return Qemu(program, unpacked.environment, versions)
