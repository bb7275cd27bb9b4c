"""Processes that run, told from later ones of the same number."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil

from wallab.errors import MachineError
from wallab.machine.owned import Owned

PATIENCE = 5.0
"""Seconds that a process has to end after a signal."""


class Process(Owned, frozen=True):
    """A process that must not outlive its owner.

    Its executable does not tell it from others: it changes where a shell waits before it executes
    a server. The moment of its start does, in a boot.
    """

    pid: int
    started: int
    """Clock ticks since the boot."""
    boot: str

    def find(self) -> psutil.Process | None:
        """Return the process if it still runs."""
        with contextlib.suppress(psutil.Error, OSError):
            if identify(self.pid) == self:
                process = psutil.Process(self.pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    return process
        return None

    def undo(self) -> str:
        """End the process: a postmaster ends its children on SIGQUIT; what is deaf is killed."""
        if (process := self.find()) is None:
            return ""
        what = f"process {self.pid}"
        with contextlib.suppress(psutil.Error):
            what += f" ({process.name()})"
            process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(PATIENCE)
        _kill(process)
        if self.find() is not None:
            raise MachineError(f"{what} does not end")
        return f"ended {what}"


class DriveServers(Owned, frozen=True):
    """The drives' servers whose files are in the folder: a kill may come before they are noted."""

    folder: Path

    def undo(self) -> str:
        """End them."""
        return "; ".join(
            line
            for process in psutil.process_iter()
            if _serves(process, self.folder)
            for line in [_identified(process).undo()]
            if line
        )


def identify(pid: int) -> Process:
    """Return the running process of that number; OSError if there is none."""
    # Behind the name, which may have any character, the third field comes.
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Process(pid, int(fields[22 - 3]), boot)


def end_below(folder: Path) -> list[str]:
    """Kill the processes whose programs lie below the folder; return a line about each."""
    done = []
    for process in _programs_below(folder.parent.resolve() / folder.name):
        with contextlib.suppress(psutil.Error):
            done.append(f"ended process {process.pid} ({process.name()})")
            _kill(process)
    return done


def _programs_below(folder: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # A program that was deleted has a remark behind its path.
            if process.exe().startswith(f"{folder}/") and _sees(process.pid, folder):
                yield process


def _serves(process: psutil.Process, folder: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        named = any(word.startswith(f"{folder}/") for word in process.cmdline())
        return named and process.name() == "wal-drive" and _sees(process.pid, folder)
    return False


def _sees(pid: int, folder: Path) -> bool:
    """Whether the folder's path leads the process, too, to this folder.

    One with another root, as in a container, calls something else so.
    """
    try:
        return os.path.samestat(folder.stat(), os.stat(f"/proc/{pid}/root{folder}"))  # noqa: PTH116
    except OSError:
        return False


def _identified(process: psutil.Process) -> Process:
    try:
        return identify(process.pid)
    except OSError:
        return Process(process.pid, 0, "")  # it has just ended


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill()
        process.wait(PATIENCE)
