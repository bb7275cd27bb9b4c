"""The control socket of a simulated drive; drive/README.md has the protocol."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import msgspec

from wallab.errors import LabError, MachineError
from wallab.record.drivereading import DriveReading


class DriveControl:
    """A connection to a drive's control socket: one command a line, one JSON object back."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(120)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise MachineError(f"no simulated drive answers at {path}: {error.strerror}") from None
        self._lines = self._socket.makefile("r", encoding="utf-8", errors="replace")

    def ask(self, command: str) -> dict[str, Any]:
        """Send a command and return the drive's answer; LabError if it refuses."""
        if "\n" in command:
            raise LabError(f"the simulated drive: {command!r}: a command is one line")
        try:
            self._socket.sendall(os.fsencode(command) + b"\n")
            line = self._lines.readline()
        except OSError as error:
            raise MachineError(
                f"the simulated drive does not answer “{command}”: {error}"
            ) from None
        if not line:
            raise MachineError(f"the simulated drive ended during “{command}”")
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            raise LabError(f"the simulated drive refuses “{command}”: {answer.get('error')}")
        return answer

    def reading(self) -> DriveReading:
        """Return the drive's counters since the last reset."""
        return msgspec.convert(self.ask("counters"), DriveReading)

    def ask_idle(self, command: str, patience: float = 30.0) -> dict[str, Any]:
        """Send a command that needs an idle drive, again until requests in flight are done."""
        deadline = time.monotonic() + patience
        while True:
            try:
                return self.ask(command)
            except MachineError:
                raise
            except LabError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def close(self) -> None:
        """Close the connection; the drive goes on."""
        self._lines.close()
        self._socket.close()
