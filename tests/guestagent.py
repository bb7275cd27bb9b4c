"""Runs in a guest as its only program: does what the test asks for over the serial line.

A request is a JSON array in a line, a verb and its arguments; the answer a JSON object in a line.
"""

import json
import os
import subprocess
import sys
import tty
from pathlib import Path
from typing import Any

from wallab.drives.real import DeviceDrive
from wallab.machine import blockdevice, cacheswitch
from wallab.machine.ledger import Ledger
from wallab.record.writecache import WriteCache

PATIENCE = 900
"""Seconds that a command may take, in a guest that is slow and on a machine that is busy."""


class Agent:
    """The verbs."""

    def __init__(self) -> None:
        self._drives: dict[str, tuple[DeviceDrive, Ledger]] = {}
        self._files = 0

    def run(self, *command: str) -> dict[str, Any]:
        """Run a command of the host's in the guest."""
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
        return {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    def disks(self) -> list[dict[str, Any]]:
        """Name the disks as the lab finds them."""
        return [
            {
                "name": disk.name,
                "kind": disk.kind,
                "controller": disk.controller,
                "bytes": int(blockdevice.read(disk.sysfs / "size")) * 512,
            }
            for disk in blockdevice.every_disk()
        ]

    def state(self, name: str) -> list[str]:
        """Read a disk's cache, and the kernel's belief, as the lab does."""
        disk = blockdevice.describe(Path("/sys/block", name).resolve())
        cache = cacheswitch.state(disk)
        return [cache.drive, cache.kernel]

    def open(self, directory: str) -> None:
        """Take the device under a directory."""
        ledger = Ledger.open(lasting=True)
        try:
            drive = DeviceDrive("guest", Path(directory), ledger)
        except BaseException:
            ledger.close()
            raise
        self._drives[directory] = drive, ledger

    def unavailable(self, directory: str, state: WriteCache) -> str:
        """Say why the device cannot be so."""
        return self._drives[directory][0].unavailable(state)

    def set(self, directory: str, state: WriteCache) -> dict[str, str]:
        """Switch the device's cache, and read it back."""
        drive = self._drives[directory][0]
        os.sync()  # as between two samples: nothing is under way
        drive.set_write_cache(state)
        return drive.write_cache()

    def close(self, directory: str) -> None:
        """Give the device back as it was."""
        drive, ledger = self._drives.pop(directory)
        drive.close()
        ledger.close()

    def sync(self, directory: str) -> None:
        """Write a new file and sync it."""
        self._files += 1
        with Path(directory, f"file-{self._files}").open("wb") as stream:
            stream.write(b"x" * 8192)
            stream.flush()
            os.fsync(stream.fileno())


def main() -> None:
    """Answer until the guest is ended."""
    agent = Agent()
    line = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    with os.fdopen(line, "rb", buffering=0) as stream:
        os.write(line, b'{"result": "ready"}\n')
        received = b""
        while True:
            received += stream.read(4096) or b""
            while b"\n" in received:
                request, received = received.split(b"\n", 1)
                _write(line, _answer(agent, json.loads(request)))


def _answer(agent: Agent, request: list[str]) -> dict[str, Any]:
    verb, *arguments = request
    try:
        return {"result": getattr(agent, verb)(*arguments)}
    except Exception as error:  # the test shall see it
        return {"error": f"{type(error).__name__}: {error}"}


def _write(line: int, answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(line, data) :]


if __name__ == "__main__":
    main()
