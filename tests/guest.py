"""A guest in software emulation, with disks of each kind on simulated drives.

It boots Debian's kernel into this machine's own files, read-only, so that the lab's own code and
the tools that it calls run in it, on a kernel and on disks that are nobody else's.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import guestfiles

from wallab import paths
from wallab.machine import process

QEMU = "qemu-system-x86_64"

PATIENCE = 900
"""Seconds for the boot, and for each answer: some 50 times of what it takes."""

BOOTS = 3
"""How often a boot is tried."""

DISKS = {
    "ata": ["ide-hd,drive=ata,bus=ide.0,serial=ata"],
    "scsi": ["virtio-scsi-pci,id=scsi", "scsi-hd,drive=scsi,bus=scsi.0,serial=scsi"],
    "raid": ["megasas,id=raid", "scsi-hd,drive=raid,bus=raid.0,serial=raid"],
    "nvme": ["nvme,drive=nvme,serial=nvme"],
    "virtio": ["virtio-blk-pci,drive=virtio,serial=virtio,config-wce=on"],
    # Its host does not let it switch the cache.
    "virtio-fixed": ["virtio-blk-pci,drive=virtio-fixed,serial=fixed,config-wce=off"],
}
"""Disks by name, and their devices."""


# With panic=-1 and -no-reboot the emulator ends when the kernel does. On a busy machine the kernel
# would else find that its timer does not work.
_PARAMETERS = "console=ttyS0 panic=-1 no_timer_check random.trust_cpu=on mitigations=off nowatchdog"


class GuestError(Exception):
    """What the guest could not do, or its end."""


class Guest:
    """A running guest and the line to its agent."""

    def __init__(self, line: socket.socket, console: Path) -> None:
        self._line = line
        self._answers = line.makefile("rb")
        self._console = console

    def hear(self) -> Any:
        """Return the next answer; GuestError with what the guest or its console says."""
        try:
            answer = self._answers.readline()
        except TimeoutError:
            answer = b""
        if not answer:
            console = self._console.read_text(errors="replace") if self._console.exists() else ""
            raise GuestError(f"the guest does not answer; its console: {console[-3000:]}")
        reply = json.loads(answer)
        if "error" in reply:
            raise GuestError(reply["error"])
        return reply["result"]

    def ask(self, verb: str, *arguments: str) -> Any:
        """Have the agent do something (tests/guestagent.py), and return what it says."""
        self._line.sendall(json.dumps([verb, *arguments]).encode() + b"\n")
        return self.hear()

    def run(self, *command: str) -> str:
        """Run a command that must succeed; return what it prints."""
        done = self.ask("run", *command)
        if done["code"]:
            raise GuestError(f"{' '.join(command)}: {done['code']}: {done['stderr']}")
        return str(done["stdout"])


@contextlib.contextmanager
def running(files: Path, drives: dict[str, Path], folder: Path) -> Iterator[Guest]:
    """Boot a guest with the disks, each an nbd socket; end it afterwards."""
    agent: list[str | Path] = [sys.executable, paths.LAB / "tests" / "guestagent.py", "/dev/ttyS1"]
    (folder / "initramfs").write_bytes(guestfiles.initramfs(files, agent))
    command: list[str | Path] = [
        QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
        "-machine", "pc,accel=tcg", "-cpu", "max", "-m", "1024",
        "-kernel", files / "vmlinuz", "-initrd", folder / "initramfs", "-append", _PARAMETERS,
        "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
    ]  # fmt: skip
    for name, address in drives.items():
        command += ["-drive", f"id={name},if=none,format=raw,file.driver=nbd,"
                    f"file.server.type=unix,file.server.path={address}"]  # fmt: skip
        for device in DISKS[name]:
            command += ["-device", device]
    # An emulated kernel can trip over its clocks while the machine is busy.
    for left in range(BOOTS - 1, -1, -1):
        place = folder / f"boot-{left}"
        place.mkdir()
        with contextlib.ExitStack() as stack:
            try:
                guest = _boot(command, place, stack)
            except GuestError:
                if not left:
                    raise
                continue
            yield guest
            return


def _boot(command: list[str | Path], folder: Path, stack: contextlib.ExitStack) -> Guest:
    """Start QEMU, and wait for the agent; the stack ends it."""
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(str(folder / "line"))
    listener.listen(1)
    errors = stack.enter_context((folder / "errors").open("wb"))
    console = folder / "console"
    lines = ["-serial", f"file:{console}", "-serial", "chardev:agent",
             "-chardev", f"socket,id=agent,path={folder / 'line'}"]  # fmt: skip
    emulator = process.spawn([*command, *lines], stdout=subprocess.DEVNULL, stderr=errors)
    stack.callback(process.end, emulator, signal.SIGKILL, 60)
    line = stack.enter_context(_accept(listener, emulator, folder / "errors"))
    line.settimeout(PATIENCE)
    guest = Guest(line, console)
    guest.hear()
    return guest


def _accept(
    listener: socket.socket, emulator: subprocess.Popen[bytes], errors: Path
) -> socket.socket:
    """Return QEMU's connection; GuestError with its words if it ends instead."""
    listener.settimeout(0.5)
    for _ in range(2 * PATIENCE):
        with contextlib.suppress(TimeoutError):
            return listener.accept()[0]
        if emulator.poll() is not None:
            raise GuestError(f"{QEMU} ended: {errors.read_text(errors='replace')[-1000:]}")
    raise GuestError(f"{QEMU} does not start")
