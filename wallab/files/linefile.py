"""Files that grow by a line of JSON, each synced before the next is made."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from wallab.errors import LabError, MachineError
from wallab.files import jsonfile

Shape = TypeVar("Shape")


class LineFile(Generic[Shape]):
    """An append-only file of structures of one shape."""

    def __init__(self, path: Path, shape: type[Shape], what: str, maker: str) -> None:
        """A line is `what`, such as “sample”; `maker` is the script that goes on with --resume."""
        self.path = path
        self._shape = shape
        self._what = what
        self._maker = maker

    def append(self, value: Shape) -> None:
        """Append a line and wait until it is on the disk.

        MachineError if that cannot be done, as on a full disk; the file is then as it was.
        """
        line = jsonfile.dumps(value) + b"\n"
        try:
            with self.path.open("ab", buffering=0) as stream:
                before = stream.tell()
                try:
                    if stream.write(line) != len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(stream.fileno())
                    if not before:
                        jsonfile.sync_folder(self.path.parent)
                except OSError:
                    with contextlib.suppress(OSError):
                        os.truncate(self.path, before)
                    raise
        except OSError as error:
            raise MachineError(
                f"{self.path}: {error.strerror}; what was there before is kept: mend that, then go "
                f"on with: {self._maker} --resume {self.path.parent}"
            ) from None

    def read(self) -> list[Shape]:
        """Return what all lines say.

        A last line that a kill cut short does not count; LabError for any other damage.
        """
        if not self.path.exists():
            return []
        records: list[Shape] = []
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                records.append(jsonfile.loads(line, self._shape))
            except msgspec.MsgspecError as error:
                if number == len(lines):
                    break
                raise LabError(f"{self.path}, line {number}: not a {self._what}: {error}") from None
        return records

    def set_aside_damaged_end(self) -> bool:
        """Move a last line that a kill cut short to a file beside; return whether there was one."""
        if not self.path.exists():
            return False
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole == len(content):
            return False
        with self.path.with_suffix(".damaged").open("ab") as aside:
            aside.write(content[whole:] + b"\n")
        os.truncate(self.path, whole)
        return True
