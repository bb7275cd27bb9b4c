"""The oracle: what must be there after a power cut, and what must not."""

import hashlib
from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from wallab.powercut.acknowledgement import Acknowledgements, Promise

Category = Literal["safe", "lost", "corrupted", "would not start"]

GHOST = -1
"""The part number of a row that its transaction rolled back to a savepoint."""


class Entry(msgspec.Struct, frozen=True):
    """A self-describing row: which part of which transaction it is, and its own checksum."""

    client: int
    sequence: int
    part: int
    """From 0; GHOST in a row that must never be seen."""
    parts: int
    """How many the transaction has."""
    shape: str
    body: str
    checksum: str

    def intact(self) -> bool:
        """Whether the row is as it was written."""
        return self.checksum == checksum(self)


def checksum(entry: Entry) -> str:
    """Return the checksum over all other fields."""
    fields = (entry.client, entry.sequence, entry.part, entry.parts, entry.shape, entry.body)
    return hashlib.sha256(repr(fields).encode()).hexdigest()


class Recovered(msgspec.Struct, frozen=True):
    """What the recovered server has."""

    entries: tuple[Entry, ...]
    counters: dict[int, int]
    """Client -> the sequence in its counter, which every transaction of it updates."""
    prepared: frozenset[tuple[int, int]]
    """(client, sequence) of the transactions that are prepared and wait."""


class Judgement(msgspec.Struct, frozen=True):
    """What the oracle says of a recovered server."""

    promised: int
    """Transactions acknowledged before the power went, but for the asynchronous ones."""
    lost: int
    oldest_ms: float
    """How long before the cut the oldest lost one had been acknowledged."""
    broken: tuple[str, ...]
    """What is there and must not be, or is there in part or out of order."""
    first_lost: Promise | None = None

    @property
    def category(self) -> Category:
        """What it comes to."""
        return "corrupted" if self.broken else "lost" if self.lost else "safe"


def judge(
    log: Acknowledgements, cut_ns: int, recovered: Recovered, asynchronous: Collection[int] = ()
) -> Judgement:
    """Compare what was promised before the cut (CLOCK_MONOTONIC, ns) with what is there.

    Transactions of the asynchronous clients (synchronous_commit=off) may be lost, but only from
    the end: never one whose successor is there, and never in part.
    """
    promises = log.before(cut_ns)
    broken: list[str] = []
    lost: list[Promise] = []
    by_client: dict[int, dict[int, list[Entry]]] = {client: {} for client in log.begun}
    for entry in recovered.entries:
        by_client.setdefault(entry.client, {}).setdefault(entry.sequence, []).append(entry)
    for client, there in sorted(by_client.items()):
        last = log.begun.get(client, 0)
        for sequence, entries in sorted(there.items()):
            broken += _faults(f"client {client}, transaction {sequence}", entries)
            if sequence > last:
                broken.append(f"client {client}, transaction {sequence}: nobody wrote it")
        broken += _order(client, set(there))
        newest = max(there, default=0)
        if (counter := recovered.counters.get(client, 0)) != newest:
            broken.append(
                f"client {client}: its counter says {counter}, its newest transaction is {newest}"
            )
        if client not in asynchronous:
            mine = [promise for promise in promises if promise.client == client]
            lost += _lost(mine, set(there), recovered.prepared)
    broken += [
        f"client {client}, transaction {sequence}: both committed and still prepared"
        for client, sequence in sorted(recovered.prepared)
        if sequence in by_client.get(client, {})
    ]
    first = min(lost, key=lambda promise: promise.at_ns, default=None)
    return Judgement(
        promised=promised(promises, asynchronous),
        lost=len({(promise.client, promise.sequence) for promise in lost}),
        oldest_ms=round((cut_ns - first.at_ns) / 1e6, 3) if first else 0.0,
        broken=tuple(broken),
        first_lost=first,
    )


def promised(promises: Iterable[Promise], asynchronous: Collection[int] = ()) -> int:
    """Return how many transactions must not be lost."""
    kept = {(p.client, p.sequence) for p in promises if p.client not in asynchronous}
    return len(kept)


def _faults(name: str, entries: list[Entry]) -> list[str]:
    """Say what is wrong with the rows of one transaction."""
    faults = []
    if any(entry.part == GHOST for entry in entries):
        faults.append(f"{name}: a row that was rolled back to a savepoint is there")
    if not all(entry.intact() for entry in entries):
        faults.append(f"{name}: a row is not as it was written")
    real = [entry for entry in entries if entry.part != GHOST]
    parts = {entry.parts for entry in real}
    if len(parts) > 1 or sorted(e.part for e in real) != list(range(max(parts, default=0))):
        faults.append(f"{name}: {len(real)} rows of {max(parts, default=0)} are there")
    return faults


def _order(client: int, there: set[int]) -> list[str]:
    """A client begins a transaction when the one before has ended: none may be skipped."""
    return [
        f"client {client}: transaction {sequence} is missing, but a later one is there"
        for sequence in range(1, max(there, default=0))
        if sequence not in there
    ]


def _lost(
    promises: Iterable[Promise], there: set[int], prepared: Collection[tuple[int, int]]
) -> list[Promise]:
    """Return the promises that were not kept."""
    return [
        promise
        for promise in promises
        if promise.sequence not in there
        and not (promise.stage == "prepared" and (promise.client, promise.sequence) in prepared)
    ]
