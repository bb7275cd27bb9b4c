"""The load of a cut: clients in threads, which write until the server goes away."""

import contextlib
import random
import select
import threading
import time
from collections.abc import Callable

import psycopg

from wallab.powercut.acknowledgement import Acknowledgements
from wallab.powercut.shapes import ASYNCHRONOUS_SHAPES, SHAPES, Client
from wallab.servers.cluster import Cluster

CLIENTS = 5
"""That wait for their commits."""

ASYNCHRONOUS = frozenset({CLIENTS})
"""The client after them, with synchronous_commit=off."""

PATIENCE = 120.0
"""Seconds within which every client has its first promise, and ends when the server has gone."""


class LoadFailed(Exception):
    """The clients did not get far enough for a cut; nothing is said about the server."""


class ServerBroke(Exception):
    """The server failed a client before anything was cut."""


def wait_until(is_so: Callable[[], bool], complaint: str) -> None:
    """Look until it is so; LoadFailed with the complaint where that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise LoadFailed(complaint)
        time.sleep(0.005)


# The server's patience with a slow machine: query_canceled, lock_not_available.
_SLOW = {"57014", "55P03"}


class Load:
    """The clients of one cut, and what they were promised."""

    def __init__(self, cluster: Cluster, chance_of: Callable[[str], random.Random]) -> None:
        self.log = Acknowledgements()
        self._cluster = cluster
        self._chance_of = chance_of
        self._stop = threading.Event()
        self._errors: list[tuple[int, psycopg.Error]] = []
        self._threads = [
            threading.Thread(target=self._write, args=(number,), daemon=True)
            for number in self._numbers()
        ]

    def _numbers(self) -> range:
        """Return the clients' numbers."""
        return range(CLIENTS + len(ASYNCHRONOUS))

    def start(self) -> None:
        """Let the clients begin."""
        for thread in self._threads:
            thread.start()

    def wait_for_promises(self) -> None:
        """Wait until each client has had a promise; LoadFailed if one does not get any."""
        self._wait_for(set(self._numbers()))

    def wait_for_a_commit(self) -> None:
        """Wait until the drive has had to keep the first promise; LoadFailed if none comes."""
        self._wait_for(set(self._numbers()) - ASYNCHRONOUS, clients=1)

    def _wait_for(self, of: set[int], clients: int | None = None) -> None:
        """Wait until so many of them, or all, have had a promise."""
        wanted = len(of) if clients is None else clients

        def promised() -> bool:
            self.check(time.monotonic_ns())
            return len(of & self.log.clients_with_promises()) >= wanted

        wait_until(promised, f"a client was promised nothing within {PATIENCE:.0f} s")

    def check(self, before_ns: int) -> None:
        """ServerBroke if the server failed a client before that moment (CLOCK_MONOTONIC).

        LoadFailed if it only was too slow.
        """
        for at_ns, error in self._errors:
            if at_ns < before_ns:
                kind = LoadFailed if error.sqlstate in _SLOW else ServerBroke
                raise kind(f"before anything was cut: {str(error).strip()}")

    def stop(self) -> None:
        """Let no client begin another transaction."""
        self._stop.set()

    def join(self) -> None:
        """Wait until the clients have ended, as they do when the server has gone."""
        self.stop()
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    raise LoadFailed("a client does not end, though its server has gone")

    def _write(self, number: int) -> None:
        chance = self._chance_of(f"client {number}")
        asynchronous = number in ASYNCHRONOUS
        shapes = ASYNCHRONOUS_SHAPES if asynchronous else tuple(SHAPES)
        try:
            commit = f"-c synchronous_commit={'off' if asynchronous else 'on'}"
            with contextlib.closing(self._cluster.connection(30, commit)) as connection:
                client = Client(number, connection, self.log, chance)
                while not self._stop.is_set():
                    client.transact(chance.choice(shapes))
        except psycopg.Error as error:
            self._errors.append((time.monotonic_ns(), error))


class LateLoad(Load):
    """Clients in a statement each that waits for a gate, and commits when it opens.

    Then they say nothing more: a server looks for a new configuration only with the next message.
    """

    def __init__(
        self, cluster: Cluster, chance_of: Callable[[str], random.Random], gate: int
    ) -> None:
        """`gate`: the number of its advisory lock."""
        super().__init__(cluster, chance_of)
        self._gate = gate

    def _numbers(self) -> range:
        return range(CLIENTS)

    def _write(self, number: int) -> None:
        try:
            with contextlib.closing(self._cluster.connection(30)) as connection:
                # As literals, not as parameters: see Client.commit_late.
                connection.cursor_factory = psycopg.ClientCursor
                Client(
                    number, connection, self.log, self._chance_of(f"client {number}")
                ).commit_late(self._gate)
                select.select([connection.fileno()], [], [], PATIENCE)
        except psycopg.Error as error:
            self._errors.append((time.monotonic_ns(), error))
