"""Why a cell is as fast as it is: what the server, the kernel and the WAL drive counted."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from wallab.record.samples import Sample

WAL_PAGE = 8192
"""Bytes of a WAL page, as PostgreSQL is configured by default."""


class Evidence(msgspec.Struct, frozen=True):
    """What was counted over all rounds of a cell; None where a counter is missing."""

    writes_per_transaction: float | None
    """Calls of the server that wrote WAL."""
    bytes_per_write: float | None
    syncs_per_transaction: float | None
    drive_writes_per_transaction: float | None
    drive_flushes_per_transaction: float | None
    revolutions_per_transaction: float | None
    """Time that the heads waited for a sector, in revolutions of the platter."""
    cache_hits: float | None
    """Share of the drive's writes that its cache took."""
    cache_full_s: float | None
    """Seconds that writes waited for room in the drive's cache."""
    seconds: float
    """Measured, all rounds together; the heads' seconds are part of them."""
    head_waited_s: float | None
    """For the sector to come around; all spindles together."""
    head_moved_s: float | None
    head_transferred_s: float | None
    units: int
    """Spindles, or channels of flash, that the drive has."""
    kept: bool
    """Whether the drive's cache survives a power failure, so that a flush need not empty it."""
    open_flags: tuple[str, ...]
    """How the kernel had the WAL open, most frequent first."""


def ratio(above: Iterable[int | None], below: Iterable[int | None]) -> float | None:
    """Return the quotient of the sums; None if a part of either is missing, or 0 below."""
    numerators, denominators = list(above), list(below)
    if not numerators or None in numerators or None in denominators:
        return None
    total = sum(value or 0 for value in denominators)
    return sum(value or 0 for value in numerators) / total if total else None


def _wal_drive(sample: Sample) -> dict[str, int]:
    """Return the counters of the drive that has the WAL."""
    reading = sample.drive.get("wal") or sample.drive.get("data")
    return reading.counters if reading else {}


def of(samples: list[Sample], units: int = 1) -> Evidence:
    """Sum up the measured samples of one cell, whose WAL drive has so many units."""
    transactions = [s.figures.transactions if s.figures else None for s in samples]
    writes = [s.wal.writes if s.wal else None for s in samples]
    drive = [_wal_drive(sample) for sample in samples]

    def counted(name: str) -> list[int | None]:
        return [counters.get(name) for counters in drive]

    def seconds(name: str) -> float | None:
        times = counted(name)
        return None if None in times else sum(value or 0 for value in times) / 1e9

    return Evidence(
        writes_per_transaction=ratio(writes, transactions),
        bytes_per_write=ratio([s.wal.write_bytes if s.wal else None for s in samples], writes),
        syncs_per_transaction=ratio(
            [s.wal.syncs if s.wal else None for s in samples], transactions
        ),
        drive_writes_per_transaction=ratio(counted("writes"), transactions),
        drive_flushes_per_transaction=ratio(counted("flushes"), transactions),
        revolutions_per_transaction=ratio(counted("revolutions_waited"), transactions),
        cache_hits=ratio(counted("cache_write_hits"), counted("writes")),
        cache_full_s=seconds("room_ns"),
        seconds=sum(s.figures.seconds for s in samples if s.figures),
        head_waited_s=seconds("rotate_ns"),
        head_moved_s=seconds("seek_ns"),
        head_transferred_s=seconds("transfer_ns"),
        units=units,
        kept=any(
            (s.write_cache.get("wal") or s.write_cache.get("data", {})).get("drive") == "battery"
            for s in samples
        ),
        open_flags=tuple(
            flags for flags, _ in Counter(f for s in samples for f in s.open_flags).most_common()
        ),
    )


def _count(number: float, noun: str) -> str:
    """Write a number of things: 13 commits, 2.1 writes, 1 page."""
    digits = f"{number:.0f}" if number >= 10 else f"{number:.1f}".removesuffix(".0")
    return f"{digits} {noun}" if digits == "1" else f"{digits} {noun}s"


def turns(evidence: Evidence) -> bool:
    """Whether the drive has heads that waited or moved: flash has none."""
    return bool(evidence.head_waited_s or evidence.head_moved_s)


def _sharing(evidence: Evidence, drive_writes: float, revolutions: float) -> str:
    """Say how commits, writes and turns of the platter go together."""
    waits = f"waits {revolutions:.2f} revolutions"
    of_it, and_it = (f", which {waits}", f", and a commit {waits}") if turns(evidence) else ("", "")
    writes, size = evidence.writes_per_transaction, evidence.bytes_per_write
    if evidence.cache_hits and not evidence.drive_flushes_per_transaction:
        return _unflushed(evidence, evidence.cache_hits, drive_writes)
    if not writes or size is None:
        return f"{drive_writes:.2f} drive writes a commit{of_it}"
    pages = size / WAL_PAGE
    each = _count(pages, "page")
    calls = f"{_count(writes, 'write')} of {each}"
    if revolutions >= 0.5:
        how = "page by page" if pages < 1.5 else "in several writes"
        words = f"each commit waits {revolutions:.1f} revolutions: {how}, {calls}"
    elif drive_writes < 0.5 * writes:
        words = (
            f"the kernel gathers the pages: {calls} a commit become {drive_writes:.2f} drive "
            f"writes{and_it}"
        )
    elif writes < 0.5:
        words = f"{_count(1 / writes, 'commit')} share a write of {each}{and_it}"
    else:
        words = f"{calls} a commit{of_it}"
    return words


def _unflushed(evidence: Evidence, hits: float, drive_writes: float) -> str:
    """Say what a cache did that acknowledges and is not flushed."""
    taken = (
        f"the drive's cache took {hits:.0%} of the {drive_writes:.2f} drive writes a commit, "
        "and nobody flushed it"
    )
    if evidence.cache_full_s and evidence.cache_full_s > 0.01 * evidence.seconds:
        share = evidence.cache_full_s / evidence.seconds
        return f"{taken}; writes waited {share:.0%} of the time for room in it"
    return f"no commit waits for more than the cache: {taken}"


def _doubling(evidence: Evidence, drive_writes: float) -> str:
    """Say where a synchronous write of the server became two writes of the drive."""
    synced = any("O_SYNC" in flags for flags in evidence.open_flags)
    # The kernel hands buffered pages to the drive when they are synced, others at once.
    buffered = "none" in evidence.open_flags
    base = evidence.syncs_per_transaction if buffered else evidence.writes_per_transaction
    moved = (evidence.head_moved_s or 0) > 0.1 * evidence.seconds * evidence.units
    if not base or not moved or not 1.5 <= drive_writes / base <= 3:
        return ""
    who = "O_SYNC" if synced else "fsync"
    what = "fsync" if buffered else "WAL write"
    return (
        f"each {what} takes {drive_writes / base:.1f} drive writes, since {who} also logs the "
        "file's time stamps, elsewhere on the disk"
    )


def _flushing(evidence: Evidence) -> str:
    """Say how often the drive's cache was emptied."""
    flushes = evidence.drive_flushes_per_transaction
    if not evidence.cache_hits or not flushes:
        return ""
    took = f"the drive's cache took {evidence.cache_hits:.0%} of the writes, and {flushes:.2f} "
    if evidence.kept:
        return f"{took}flushes a commit found it kept by the battery"
    return f"{took}flushes a commit emptied it again"


def shares_of_head(evidence: Evidence) -> dict[str, float] | None:
    """Return what the heads did -> its share of the measured time (0 to 1), the rest idle."""
    times = (evidence.head_waited_s, evidence.head_moved_s, evidence.head_transferred_s)
    if not evidence.seconds or None in times:
        return None
    measured = evidence.seconds * evidence.units
    waited, moved, transferred = ((time or 0) / measured for time in times)
    # Pages written in the last moment can keep the heads busy after the measured time.
    total = max(1.0, waited + moved + transferred)
    return {
        "waited": waited / total,
        "moved": moved / total,
        "transferred": transferred / total,
        "idle": (total - waited - moved - transferred) / total,
    }


def explain(evidence: Evidence) -> tuple[str, ...]:
    """Say in words what the counters say; every figure is from them."""
    drive_writes = evidence.drive_writes_per_transaction
    revolutions = evidence.revolutions_per_transaction
    if drive_writes is None:
        return ()
    heads = shares_of_head(evidence)
    if drive_writes < 0.001:
        idle = f", which was idle {heads['idle']:.0%} of the time" if heads else ""
        return (f"no commit waits for the WAL drive{idle}",)
    sentences = []
    if revolutions is not None:
        sentences.append(_sharing(evidence, drive_writes, revolutions))
    sentences += [_doubling(evidence, drive_writes), _flushing(evidence)]
    if heads and not turns(evidence):
        sentences.append(f"the drive was at work {heads['transferred']:.0%} of the time")
    elif heads:
        sentences.append(
            f"heads: {heads['waited']:.0%} waiting, {heads['moved']:.0%} moving, "
            f"{heads['transferred']:.0%} transferring"
        )
    return tuple(filter(None, sentences))
