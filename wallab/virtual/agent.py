"""Runs in the guest as its first program: does what the order says with the lab's own bed.

An order comes on a memory device, the answer goes out by the second serial line. After each answer
the machine stops at one instruction; a clone of it goes on there, and finds another order.
"""

import ctypes
import fcntl
import mmap
import os
import subprocess
import sys
import termios
import time
import traceback
import tty
from pathlib import Path

from wallab.bench import provenance
from wallab.bench.realbed import RealBed
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.machine.confinement import Confinement
from wallab.virtual import devices, message, speed
from wallab.virtual.message import Answer, Order

_SERVER = Path("/server")
_LINE = "/dev/ttyS1"
_ORDER_BYTES = 1 << 20
_BLKFLSBUF = 0x1261
_PVPANIC = 0x505
_MS_REC = 0x4000
_MS_SHARED = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_STOP = bytes.fromhex("66ba0505b001eec3")
"""mov $0x505, %dx; mov $1, %al; out %al, %dx; ret."""


def _device(megabytes: int) -> Path:
    """Return the memory device of that size."""
    for size in sorted(Path("/sys/block").glob("pmem*/size")):
        if int(size.read_text()) * 512 == megabytes << 20:
            return Path("/dev") / size.parent.name
    raise FileNotFoundError(f"no memory device of {megabytes} MB")


class Stopper:
    """Stops the machine at an instruction of this process."""

    def __init__(self) -> None:
        if _LIBC.ioperm(_PVPANIC, 1, 1):
            raise OSError(ctypes.get_errno(), "ioperm")
        self._code = mmap.mmap(
            -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        self._code.write(_STOP)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self.stop = ctypes.CFUNCTYPE(None)(address)


class Outside:
    """The mount namespace that the agent began in: what is mounted there is in all others, too.

    The bed goes on to namespaces of its own, and its drives stay in one between.
    """

    def __init__(self) -> None:
        if _LIBC.mount(None, b"/", None, _MS_REC | _MS_SHARED, None):
            raise OSError(ctypes.get_errno(), "sharing of mounts")
        self._here = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def run(self, *command: str | Path) -> None:
        """Run a command there; MachineError with its words if it fails."""
        place = f"--mount=/proc/{os.getpid()}/fd/{self._here}"
        done = subprocess.run(["nsenter", place, *command], capture_output=True, text=True)
        if done.returncode:
            raise MachineError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


def _fresh(device: Path) -> None:
    """Drop what the kernel keeps of a device whose content is about to be another.

    OSError if it is mounted anywhere.
    """
    descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        fcntl.ioctl(descriptor, _BLKFLSBUF, 0)
    finally:
        os.close(descriptor)


def _receive(device: Path) -> Order:
    _fresh(device)
    with device.open("rb") as stream:
        return message.unpacked(stream.read(_ORDER_BYTES))


class Agent:
    """The guest's bed and what is done with it."""

    def __init__(self) -> None:
        self._bed: RealBed | None = None
        self._servers = _device(devices.SERVER_MB)
        self._outside = Outside()

    def answer(self, order: Order) -> Answer:
        """Do what is ordered."""
        time.sleep(order.wait_ns / 1e9)
        self._show_server()
        if order.kind == "sample":
            self._slow_down(order.experiment.mips)
        if order.kind != "template":
            # The machine ends with the answer: to undo anything would only take time.
            return self._from_template(order)
        try:
            return self._template(order)
        finally:
            self._hide_server()

    def _show_server(self) -> None:
        _fresh(self._servers)
        self._outside.run("mount", "-t", "erofs", "-o", "ro", self._servers, _SERVER)

    def _hide_server(self) -> None:
        if self._bed:
            self._bed.hide_servers()
        self._outside.run("umount", _SERVER)
        _fresh(self._servers)

    def _slow_down(self, mips: int) -> None:
        """Let the sample have so many MIPS, and the drives, which run already, all of them."""
        if (group := speed.limit(os.getpid(), mips)) is not None:
            # A server whose memory is limited has a group, too, which must be one below.
            self._outside.run("mount", "--bind", group, group.parent)

    def _template(self, order: Order) -> Answer:
        trees = {order.server: _SERVER / "tree"}
        # The guest is the sandbox.
        self._bed = RealBed(order.experiment, order.preset, order.cells, trees, Confinement())
        report = self._bed.open()
        if order.warm:
            self._bed.warm_up()
        return Answer(report=report, machine=provenance.machine())

    def _from_template(self, order: Order) -> Answer:
        assert self._bed is not None
        trees = {order.server: _SERVER / "tree"}
        self._bed.take_over(order.experiment, order.preset, order.cells, trees, order.seed)
        if order.kind == "probe":
            return Answer(
                methods=self._bed.methods[order.server],
                lacking=tuple(map(self._bed.lacks, order.cells)),
            )
        (cell,) = order.cells
        return Answer(sample=self._bed.sample(cell, order.round, order.position))


def main() -> None:
    """Answer orders until the machine is ended."""
    agent, stopper, orders = Agent(), Stopper(), _device(devices.ORDERS_MB)
    line = os.open(_LINE, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    while True:
        try:
            answer = agent.answer(_receive(orders))
        except LabError as error:
            answer = Answer(error=str(error))
        except Exception as error:  # the host shall see it
            traceback.print_exc(file=sys.stderr)
            answer = Answer(error=f"{type(error).__name__}: {error}")
        data = jsonfile.dumps(answer) + b"\n"
        while data:
            data = data[os.write(line, data) :]
        termios.tcdrain(line)
        stopper.stop()


if __name__ == "__main__":
    main()
