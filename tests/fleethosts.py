"""A scheduler and its workers, each a process, on this machine or in network namespaces."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from wallab import paths

NOTHING: Mapping[str, str] = {}
PATIENCE = 120
"""Seconds that anything of it may take on a busy machine."""


def free_port() -> int:
    """Return a port of the loopback that nobody has."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Hosts:
    """Processes of a fleet; the end of the block ends them, whatever they do."""

    def __init__(
        self,
        home: Path,
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        enter: Sequence[str] = (),
    ) -> None:
        """`enter` goes before the scheduler's command."""
        self._home = home
        self._enter = enter
        self._options = options
        self._started: list[subprocess.Popen[bytes]] = []
        self.address = f"tcp://{host}:{free_port()}"
        self.scheduler: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Hosts":
        self.start_scheduler()
        return self

    def start(
        self,
        module: str,
        *arguments: str,
        enter: Sequence[str] = (),
        environment: Mapping[str, str] = NOTHING,
    ) -> subprocess.Popen[bytes]:
        """Start a module; `enter` goes before the command."""
        with (self._home / "log").open("ab") as log:
            child = subprocess.Popen(
                [*enter, sys.executable, "-m", module, *arguments],
                cwd=paths.LAB, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=os.environ | {"TMPDIR": str(self._home), **environment},
                start_new_session=True,
            )  # fmt: skip
        self._started.append(child)
        return child

    def start_scheduler(self) -> None:
        """Start the scheduler, maybe again."""
        words = (self.address, *self._options)
        self.scheduler = self.start("wallab.command.scheduler", *words, enter=self._enter)

    def worker(
        self,
        name: str,
        jobs: int = 2,
        enter: Sequence[str] = (),
        environment: Mapping[str, str] = NOTHING,
    ) -> subprocess.Popen[bytes]:
        """Start a host, as scripts/worker does."""
        words = (self.address, "--name", name, "--jobs", str(jobs), *self._options)
        return self.start("wallab.command.worker", *words, enter=enter, environment=environment)

    @property
    def log(self) -> str:
        """What all have said."""
        return (self._home / "log").read_text(errors="replace")

    def wait_for(self, words: str, times: int = 1) -> None:
        """Wait until somebody has said so."""
        deadline = time.monotonic() + PATIENCE
        while self.log.count(words) < times:
            assert time.monotonic() < deadline, f"nobody said {words!r}: {self.log}"
            time.sleep(0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._started:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def inner(supervisor: subprocess.Popen[bytes]) -> int:
    """Return the process that takes the samples of a scripts/worker."""
    listed = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if children := listed.read_text().split():
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError("the worker has no process")
