"""What the server promised its clients, noted in memory, off the drives that lose power."""

import time
from typing import Literal

import msgspec

Stage = Literal["prepared", "committed"]


class Promise(msgspec.Struct, frozen=True):
    """An acknowledgement that a client received."""

    client: int
    sequence: int
    """The client's transactions are numbered from 1."""
    stage: Stage
    at_ns: int
    """CLOCK_MONOTONIC, after the client had it."""


class Acknowledgements:
    """The log of all clients of one cut; several threads write to it."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}
        """Client -> its last transaction that was begun."""
        self.promises: list[Promise] = []

    def begin(self, client: int, sequence: int) -> None:
        """Note that the client begins a transaction: from now on it may be there."""
        self.begun[client] = sequence

    def note(self, client: int, sequence: int, stage: Stage) -> None:
        """Note an acknowledgement that has just been received."""
        self.promises.append(Promise(client, sequence, stage, time.monotonic_ns()))

    def before(self, at_ns: int) -> list[Promise]:
        """Return the promises that were received before that moment.

        A later one may have come from the page cache of a server whose drive was dead already:
        a real power cut would have ended that server before it could answer.
        """
        return [promise for promise in self.promises if promise.at_ns < at_ns]

    def clients_with_promises(self) -> set[int]:
        """Return the clients that have received something."""
        return {promise.client for promise in tuple(self.promises)}
