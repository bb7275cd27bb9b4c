"""QEMU as a machine whose clock counts instructions, and its line for orders to itself (QMP)."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from wallab.errors import MachineError
from wallab.machine import process
from wallab.virtual import speed, turns
from wallab.virtual.devices import ORDERS_MB, ROOT_MB, SERVER_MB
from wallab.virtual.qemu import PROGRAM, Qemu

_PARAMETERS = (
    "console=ttyS0 panic=-1 tsc=reliable no_timer_check mitigations=off nowatchdog "
    "random.trust_cpu=off quiet norandmaps nokaslr preempt=full init_on_alloc=0"
)
_PATIENCE = 60
"""Seconds that the emulator itself may take to answer, on a busy machine."""


class Ended(MachineError):
    """The emulator ended, or was ended, before the guest had stopped."""


class Machine(msgspec.Struct, frozen=True):
    """A guest's parts, before it is started."""

    qemu: Qemu
    kernel: Path
    first: Path
    """The first file system."""
    root: Path
    server: Path
    orders: Path
    ram: Path
    memory_mb: int
    mips: int

    def command(self, *, private: bool) -> list[str | Path]:
        """Return QEMU's command line but for its ends; with `private`, no file is written to."""
        share = "off" if private else "on"
        memory = f"{self.memory_mb},slots=4,maxmem={self.memory_mb + 4096}M"
        command: list[str | Path] = [
            self.qemu.program, "-name", "guest,debug-threads=on",
            "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-machine", "pc,hpet=off,nvdimm=on,memory-backend=ram",
            "-accel", "tcg,tb-size=512", "-cpu", "Nehalem,-rdtscp", "-smp", "1", "-m", memory,
            "-icount", f"shift={speed.shift(self.mips)},sleep=off,align=off",
            "-rtc", "base=2005-07-20T00:00:00,clock=vm",
            "-device", "pvpanic", "-action", "panic=pause",
            "-kernel", self.kernel, "-initrd", self.first, "-append", _PARAMETERS,
            "-object", _memory("ram", self.ram, self.memory_mb << 20, share),
        ]  # fmt: skip
        for name, file, size in (
            ("root", self.root, ROOT_MB),
            ("orders", self.orders, ORDERS_MB),
            ("server", self.server, SERVER_MB),
        ):
            command += ["-object", _memory(name, file, size << 20, share)]
            command += ["-device", f"nvdimm,memdev={name},id=nv-{name}"]
        return command

    def options(self) -> tuple[str, ...]:
        """Return the command line with the names of files without their folders."""
        bare = {
            field: Path(getattr(self, field).name)
            for field in ("kernel", "first", "root", "server", "orders", "ram")
        }
        command = msgspec.structs.replace(self, **bare).command(private=True)
        return tuple(map(str, command[1:]))


def _memory(name: str, file: Path, size: int, share: str) -> str:
    # A comma ends an option; two are one.
    path = str(file).replace(",", ",,")
    return f"memory-backend-file,id={name},mem-path={path},size={size},share={share}"


def version(qemu: Qemu) -> tuple[str, str]:
    """Return how QEMU names itself, and its digest; MachineError if it does not run here."""
    asked = [str(qemu.program), "--version"]
    done = subprocess.run(asked, env=os.environ | qemu.environment, capture_output=True, text=True)
    if done.returncode:
        raise MachineError(f"{qemu.program} does not run here: {done.stderr.strip()[-300:]}")
    return done.stdout.splitlines()[0], qemu.sha256


class Emulator:
    """A QEMU at work, its guest not yet begun; `folder` takes its sockets and lines."""

    def __init__(self, machine: Machine, folder: Path, *, clone: bool) -> None:
        self._folder = folder
        self._events: list[str] = []
        control = folder / "qmp"
        ends: list[str | Path] = [
            "-serial", f"file:{folder / 'console'}", "-serial", f"file:{folder / 'answer'}",
            "-qmp", f"unix:{control},server=on,wait=off", "-S",
        ]  # fmt: skip
        if clone:
            ends += ["-incoming", "defer"]
        library = turns.library()
        with (folder / "errors").open("wb") as errors:
            self.process = process.spawn(
                [*machine.command(private=clone), *ends],
                # By a name without blanks and colons, whatever the cache is called.
                cwd=library.parent,
                environment=machine.qemu.environment | {"LD_PRELOAD": f"./{library.name}"},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._connect(control)
            self._lines = self._socket.makefile("rb")
            self._read()
            self.ask("qmp_capabilities")
            if not turns.taken(self.process.pid):
                raise MachineError(
                    f"{PROGRAM}: its processor does not take turns with its main loop, so that "
                    "samples would not be the same twice; is LD_PRELOAD without effect here?"
                )
        except BaseException:
            self.end()
            raise

    def _connect(self, control: Path) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._socket.connect(str(control))
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise self._ended() from error
                time.sleep(0.01)

    def _read(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except (OSError, ValueError):
            line = b""
        if not line:
            raise self._ended()
        message: dict[str, Any] = json.loads(line)
        return message

    def _ended(self) -> Ended:
        words = []
        for name in ("errors", "console"):
            with contextlib.suppress(OSError):
                words.append((self._folder / name).read_text(errors="replace").strip()[-1500:])
        return Ended(f"the emulator ended: {'; '.join(filter(None, words)) or 'without a word'}")

    def ask(self, verb: str, **arguments: object) -> Any:
        """Have QEMU do something; MachineError if it refuses."""
        self._send({"execute": verb, "arguments": arguments})
        return self._result(verb)

    def _send(self, request: dict[str, Any], descriptor: int | None = None) -> None:
        data = json.dumps(request).encode() + b"\n"
        try:
            if descriptor is None:
                self._socket.sendall(data)
            else:
                socket.send_fds(self._socket, [data], [descriptor])
        except OSError:
            raise self._ended() from None

    def _result(self, verb: str) -> Any:
        while True:
            message = self._read()
            if "event" in message:
                self._events.append(message["event"])
            elif "error" in message:
                raise MachineError(f"{PROGRAM} refuses {verb}: {message['error']['desc']}")
            else:
                return message["return"]

    def _migrate(self, verb: str, file: Path, mode: str) -> None:
        """Save or load the state of the devices; memory stays in its files."""
        capability = {"capability": "x-ignore-shared", "state": True}
        self.ask("migrate-set-capabilities", capabilities=[capability])
        with file.open(mode) as stream:
            self._send({"execute": "getfd", "arguments": {"fdname": "state"}}, stream.fileno())
            self._result("getfd")
        self.ask(verb, uri="fd:state")
        while (status := self.ask("query-migrate").get("status")) != "completed":
            if status == "failed":
                raise MachineError(f"{PROGRAM}: {verb} failed; {self._ended()}")
            time.sleep(0.01)

    def save(self, file: Path) -> None:
        """Keep the state of the stopped guest's devices."""
        self._migrate("migrate", file, "wb")

    def load(self, file: Path) -> None:
        """Take over the state of another guest's devices."""
        self._migrate("migrate-incoming", file, "rb")

    def run(self) -> bytes:
        """Let the guest run until it stops itself; return its answer, a line."""
        self._events.clear()
        self.ask("cont")
        while "GUEST_PANICKED" not in self._events or "STOP" not in self._events:
            message = self._read()
            if "event" in message:
                self._events.append(message["event"])
        return (self._folder / "answer").read_bytes()

    def end(self) -> None:
        """End the emulator; safe to call twice, and from another thread."""
        process.end(self.process, signal.SIGKILL, 60)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
