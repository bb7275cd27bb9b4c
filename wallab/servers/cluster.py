"""A PostgreSQL cluster of the lab's own: made, started, asked, stopped."""

import contextlib
import functools
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from wallab.errors import LabError
from wallab.machine import process
from wallab.machine.confinement import Confinement, Places, Program
from wallab.machine.ledger import Ledger
from wallab.machine.memorygroup import MemoryGroup

START_PATIENCE = 120.0
"""Seconds that a server may take to accept connections."""


READ_PATIENCE = 1800.0
"""Seconds that all files of a server may take to be read."""


NOTHING = Places()

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group; see unix(7), SO_PEERCRED."""


class ServerFailed(LabError):
    """The server did not start, or went away; the message has the end of its log."""


def methods(server: Path, confinement: Confinement) -> tuple[str, ...]:
    """Ask an installed server which values of wal_sync_method it has."""
    return methods_told(server, confinement.errors_of(asking_methods(server), server))


def asking_methods(server: Path) -> list[str | Path]:
    """Return the command that fails and tells which values of wal_sync_method the server has."""
    command: list[str | Path] = [server / "bin" / "postgres", "-C", "wal_sync_method"]
    return [*command, "-D", "/nonexistent", "-c", "wal_sync_method=?"]


def methods_told(server: Path, words: str) -> tuple[str, ...]:
    """Read what that command said; LabError if it tells no values."""
    answer = re.search(r"Available values: (.+?)\.?$", words, re.MULTILINE)
    if not answer:
        raise LabError(f"{server}: does not tell its wal_sync_methods: {words.strip()[-300:]}")
    return tuple(name.strip() for name in answer[1].split(","))


@functools.cache
def has_setting(server: Path, name: str, value: str, confinement: Confinement) -> bool:
    """Ask an installed server whether it knows the setting and takes the value."""
    command: list[str | Path] = [server / "bin" / "postgres", "-C", name, "-D", "/nonexistent"]
    errors = confinement.errors_of([*command, "-c", f"{name}={value}"], server)
    # What comes after the setting was taken is that there is no such directory.
    return "/nonexistent" in errors and "configuration parameter" not in errors


class Cluster:
    """A data directory, whose WAL may be elsewhere, and the server that runs on it.

    It is reached through a socket in a folder of its own alone, never through a port.
    """

    def __init__(
        self,
        data: Path,
        wal: Path,
        ledger: Ledger,
        confinement: Confinement,
        group: MemoryGroup | None = None,
        beside: Places = NOTHING,
        name: str = "",
    ) -> None:
        """`group` limits the memory of the server, if anything does.

        `beside` is what it works with besides its own folders. `name` tells the clusters of a
        ledger apart.
        """
        self.data = data
        self.wal = wal
        self.confinement = confinement
        self.beside = beside
        self._ledger = ledger
        suffix = f"-{name}" if name else ""
        self.socket = ledger.folder / f"socket{suffix}"
        self.clients = ledger.folder / f"clients{suffix}"
        """What clients write."""
        self.log = ledger.folder / "log" / f"postgresql{suffix}.log"
        """In a folder where root alone writes, and the server's user reads."""
        for folder in (self.socket, self.clients):
            folder.mkdir(exist_ok=True)
            process.own(folder)
        self.log.parent.mkdir(exist_ok=True)
        self.log.parent.chmod(0o755)
        self._group = group
        self._postmaster: Program | None = None
        self._log_begin = 0

    def places(self, server: Path) -> Places:
        """Return what the server, and programs that work on its files, see and write."""
        return Places(
            (self.data, self.wal, self.socket, *self.beside.writable),
            (server, *self.beside.readable),
        )

    def clients_places(self, server: Path) -> Places:
        """Return what clients that come with the server see and write."""
        return Places((self.clients,), (server, self.socket, self.log.parent))

    def create(self, server: Path, *options: str) -> None:
        """Run initdb, with further options; LabError with its words if it fails."""
        # LC_ALL=C and trust: the cluster is the lab's alone and lasts as long as the run.
        own = ["-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync"]
        command: list[str | Path] = [
            server / "bin" / "initdb",
            "-D",
            self.data,
            "-X",
            self.wal,
            *own,
            *options,
        ]
        places = self.places(server)
        self.confinement.prepare(places)
        self.confinement.must_run(command, places, "initdb")

    def start(self, server: Path, settings: dict[str, str], cpus: int | None = None) -> None:
        """Start the server with the settings, on the first so many CPUs, and wait for it.

        It is ready when it accepts connections; ServerFailed if it does not.
        """
        self.confinement.renew(self.socket, self.clients)
        own = {"listen_addresses": "", "unix_socket_directories": str(self.socket)}
        command = process.pinned([server / "bin" / "postgres", "-D", self.data], cpus)
        for name, value in (settings | own).items():
            command += ["-c", f"{name}={value}"]
        if self._group:
            command = self._group.waiting(command)
        with self.log.open("ab") as log:
            self._log_begin = log.tell()
            self._postmaster = self.confinement.start(
                command,
                self.places(server),
                stdin=subprocess.PIPE if self._group else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        # What keeps it takes it along; it may be over already.
        if self._postmaster.child.returncode is None:
            self._ledger.add_process(self._postmaster.child.pid)
        if self._group:
            self._group.admit(self._postmaster.child, self._postmaster.pid)
        deadline = time.monotonic() + START_PATIENCE
        while True:
            try:
                with self.connect():
                    return
            except psycopg.OperationalError as error:
                if not self._postmaster.alive() or time.monotonic() > deadline:
                    self.stop(signal.SIGQUIT)
                    reason = self.complaints() or "; ".join(self._said()[-5:]) or "it said nothing"
                    raise ServerFailed(f"the server did not start: {reason}") from error
                time.sleep(0.02)

    def _said(self) -> list[str]:
        """Return what the server has logged since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace").splitlines()

    def complaints(self) -> str:
        """Return the last of what the server said is wrong since it was started; maybe nothing."""
        # What it says to those who ask too early, or when it stops, tells nothing.
        telling = [
            line
            for line in self._said()
            if re.search(r"FATAL|PANIC|ERROR|HINT|DETAIL|was terminated by signal", line)
            and not re.search(r"the database system is |has not been accepting|not yet", line)
        ]
        return "; ".join(telling[-5:])

    @contextlib.contextmanager
    def connect(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Connect as the superuser, in autocommit mode."""
        with self.connection() as connection:
            yield connection

    def connection(
        self, timeout: int = 10, options: str = ""
    ) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection as the superuser, in autocommit mode; the timeout in seconds."""
        connection = psycopg.connect(
            host=str(self.socket),
            user="postgres",
            dbname="postgres",
            autocommit=True,
            connect_timeout=timeout,
            options=options,
            # The folder is the server's user's, who could put a link to another's socket there:
            # another user's, or that of another server of the same user's.
            requirepeer=process.server_user() or "",
        )
        program = self._postmaster  # which another thread may just have stopped
        if program is None or _listener(connection) != program.pid:
            connection.close()
            raise psycopg.OperationalError(f"another server answers at {self.socket}")
        return connection

    def postmaster(self) -> int:
        """Return the number of the running postmaster's process."""
        assert self._postmaster is not None
        return self._postmaster.pid

    def cpu_seconds(self) -> float:
        """Return the processor time of the server's processes, those that have ended included."""
        try:
            postmaster = psutil.Process(self.postmaster())
            times = postmaster.cpu_times()
            total = times.user + times.system + times.children_user + times.children_system
            for child in postmaster.children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = child.cpu_times()
                    total += times.user + times.system
        except psutil.NoSuchProcess:
            raise ServerFailed("the server is gone") from None
        return float(total)

    def alive(self) -> bool:
        """Return whether the postmaster runs."""
        return self._postmaster is not None and self._postmaster.alive()

    def particulars(self) -> dict[str, Any]:
        """Ask the running server for what can move a number: settings that differ, checksums.

        Settings are name -> value as SHOW tells it; those that are paths of this machine are
        left out.
        """
        with self.connect() as connection:
            rows = connection.execute("""
                SELECT name, current_setting(name) FROM pg_settings
                WHERE setting IS DISTINCT FROM boot_val AND setting NOT LIKE '%/%'
                ORDER BY name""").fetchall()
            checksums = connection.execute("SHOW data_checksums").fetchone()
        return {
            "settings": dict(rows),
            "data_checksums": checksums[0] if checksums else "",
        }

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT with a checkpoint (fast), SIGQUIT without (immediate)."""
        if self._postmaster is None:
            return
        self._postmaster.end(how, patience=300 if how == signal.SIGINT else 30)
        self._postmaster = None

    def segments(self) -> int:
        """Return how many WAL segments lie in pg_wal."""
        names = _as_server(["find", self.wal, "-maxdepth", "1", "-printf", "%f\\n"])
        return sum(1 for name in names if re.fullmatch(r"[0-9A-F]{24}", name))

    def read_into_memory(self) -> int:
        """Read the databases' files into the page cache; return how many bytes they are."""
        command: list[str | Path] = ["find", self.data / "base", "-type", "f", "-printf", "%s\\n"]
        command += ["-exec", "sh", "-c", 'exec cat -- "$@" >/dev/null', "sh", "{}", "+"]
        return sum(map(int, _as_server(command)))


def _listener(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    """Return the number of the process that made the socket which the connection is to."""
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])


def _as_server(command: list[str | Path]) -> list[str]:
    """Return the lines that a program prints as the server's user, whose folders it looks at.

    Nothing that leads out of them leads root. ServerFailed if it cannot.
    """
    with process.started(
        command, as_server=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        try:
            output, errors = child.communicate(timeout=READ_PATIENCE)
        except subprocess.TimeoutExpired:
            raise ServerFailed("the server's files take too long to read") from None
    if child.returncode:
        words = errors.decode(errors="replace").strip()[-300:]
        raise ServerFailed(f"the server's files cannot be read: {words}")
    return output.decode(errors="replace").splitlines()
