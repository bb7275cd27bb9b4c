"""How the programs of installed servers are run: a patched one is a stranger's.

Here as the user that servers run as, which is all there is where the machine itself is the sandbox:
a container, or the virtual machine's guest. Elsewhere serversandbox.py puts walls around them.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

from wallab.errors import LabError
from wallab.machine import process
from wallab.machine.process import Options

_PATIENCE = 60
"""Seconds for a program that only says something of itself."""


class Places(NamedTuple):
    """What a program works with, besides the machine's programs."""

    writable: tuple[Path, ...] = ()
    """Folders."""
    readable: tuple[Path, ...] = ()


class Program:
    """A program at work that ends when it is told to."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child
        """What the lab started: the program, or what keeps it."""

    @property
    def pid(self) -> int:
        """The number of the program's process."""
        return self.child.pid

    def alive(self) -> bool:
        """Return whether it runs; what it started may go on without it."""
        return self.child.poll() is None

    def end(self, how: signal.Signals, patience: float) -> None:
        """Send the signal, if it runs, and wait; past the patience (s) kill it."""
        process.end(self.child, how, patience)


class Confinement:
    """Runs programs as the user that servers run as."""

    def prepare(self, places: Places) -> None:
        """Have the folders that are to be written; LabError where they cannot be made."""

    def renew(self, *folders: Path) -> None:
        """Let nothing be there that an earlier program left; the folders are root's to name."""

    def _call(
        self, command: Sequence[str | Path], places: Places, options: Options
    ) -> tuple[Sequence[str | Path], Options]:
        """Return how a program is started that may use these places."""
        return command, {**options, "as_server": True}

    def spawn(
        self, command: Sequence[str | Path], places: Places, **options: Unpack[Options]
    ) -> subprocess.Popen[bytes]:
        """Start a program as `process.spawn` does; `end` it."""
        command, options = self._call(command, places, options)
        return process.spawn(command, **options)

    @contextlib.contextmanager
    def started(
        self, command: Sequence[str | Path], places: Places, **options: Unpack[Options]
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a program as `spawn` does, and end it when the block ends, however it ends."""
        command, options = self._call(command, places, options)
        with process.started(command, **options) as child:
            try:
                yield child
            finally:
                self.end(child)

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """End a program that `spawn` started, if it runs; nothing of it uses a file after that."""
        process.end_group(child)

    def start(
        self, command: Sequence[str | Path], places: Places, **options: Unpack[Options]
    ) -> Program:
        """Start a program whose processes may go on for a while if it dies."""
        options["deadly"] = signal.SIGQUIT  # a postmaster's word for its processes to end
        return Program(self.spawn(command, places, **options))

    def must_run(
        self,
        command: Sequence[str | Path],
        places: Places,
        what: str,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Run a program to its end; LabError with its last words if it fails."""
        with self.started(
            command,
            places,
            environment=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as child:
            process.must_end(child, what)

    def foreground(
        self, command: Sequence[str | Path], places: Places, environment: dict[str, str]
    ) -> int:
        """Run a program that talks with whoever runs the lab; return its exit code."""
        user = process.server_user()
        return subprocess.run(
            command,
            env=os.environ | environment,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        ).returncode

    def errors_of(self, command: Sequence[str | Path], server: Path) -> str:
        """Return what a program of the installed server says on standard error, and no more."""
        with self.started(
            command,
            Places(readable=(server,)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as child:
            try:
                _, errors = child.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                raise LabError(f"{command[0]} does not end") from None
        return errors.decode(errors="replace")

    def can_run(self, server: Path) -> bool:
        """Whether the user can reach the installed server where it is."""
        try:
            with self.started(
                [server / "bin" / "postgres", "-V"],
                Places(readable=(server,)),
                stdout=subprocess.DEVNULL,
            ) as child:
                return child.wait(_PATIENCE) == 0
        except PermissionError:
            return False
