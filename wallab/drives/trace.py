"""What a simulated drive noted of every request, read and summed up; drive/TRACE.md has the format.

A destage is the drive's own write, that empties its cache.
"""

import statistics
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from wallab.errors import LabError

_HEADER = struct.Struct("<8sIIqqq24x")
_RECORD = struct.Struct("<12qIHH")
_KINDS = ("read", "write", "flush", "destage")

_FLAGS = {
    1: "fua",
    2: "merged",
    4: "cached",
    8: "read-ahead",
    16: "failed",
    32: "untimed",
    64: "lied",
}


class TracedRequest(msgspec.Struct, frozen=True):
    """One record. Moments are CLOCK_MONOTONIC; all times in ns."""

    sequence: int
    command: int
    arrival: int
    start: int
    done: int
    delivered: int
    overhead: int
    interface: int
    seek: int
    rotate: int
    transfer: int
    sector: int
    count: int
    kind: str
    flags: tuple[str, ...]


class Trace(msgspec.Struct, frozen=True):
    """A whole file."""

    revolution_ns: int
    requests: tuple[TracedRequest, ...]


def read(file: Path) -> Trace:
    """Read a trace, also one that is still being written; LabError if it is none."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise LabError(f"{file}: {error.strerror}") from None
    if len(data) < _HEADER.size or not data.startswith(b"WALDRIVE"):
        raise LabError(f"{file}: no trace of a drive; scripts/drive trace DIRECTORY FILE makes one")
    _, version, size, revolution_ns, *_ = _HEADER.unpack_from(data)
    if (version, size) != (1, _RECORD.size):
        raise LabError(f"{file}: a trace of version {version}, and not of version 1")
    whole = (len(data) - _HEADER.size) // size * size
    records = memoryview(data)[_HEADER.size : _HEADER.size + whole]
    if revolution_ns <= 0:
        raise LabError(f"{file}: a revolution of {revolution_ns} ns; expected more than 0")
    return Trace(revolution_ns, tuple(_requests(file, records)))


def _requests(file: Path, records: memoryview) -> Iterator[TracedRequest]:
    for number, values in enumerate(_RECORD.iter_unpack(records), 1):
        fields: dict[str, Any] = dict(zip(TracedRequest.__struct_fields__, values, strict=True))
        if fields["kind"] >= len(_KINDS):
            raise LabError(
                f"{file}: record {number}: a request of kind {fields['kind']}; expected one of 0 "
                f"to {len(_KINDS) - 1}"
            )
        fields["kind"] = _KINDS[fields["kind"]]
        fields["flags"] = tuple(name for bit, name in _FLAGS.items() if fields["flags"] & bit)
        yield TracedRequest(**fields)


class KindSummary(msgspec.Struct, frozen=True):
    """The requests of one kind: how many, how large, and ms from arrival to completion."""

    requests: int
    merged: int
    cached: int
    """Taken, or answered, by the write cache, or from what was read ahead."""
    fua: int
    failed: int
    bytes: int
    mean_ms: float
    p99_ms: float
    max_ms: float


class TraceSummary(msgspec.Struct, frozen=True):
    """What the drive did, in seconds, and in revolutions of its platter."""

    seconds: float
    """From the first arrival to the last answer."""
    kinds: dict[str, KindSummary]
    head_waited_s: float
    head_moved_s: float
    head_transferred_s: float
    revolutions_waited: float
    revolutions_per_write: float
    """Of those that were not merged into another's command; 0 if there are none."""


def summarize(trace: Trace) -> TraceSummary:
    """Sum a trace up; LabError if there is nothing in it."""
    requests = trace.requests
    if not requests:
        raise LabError("the trace has no requests in it")
    rotate = sum(request.rotate for request in requests)
    of_kind = {
        kind: of
        for kind in _KINDS
        if (of := [request for request in requests if request.kind == kind])
    }
    writes = [request for request in of_kind.get("write", []) if "merged" not in request.flags]
    for_writes = sum(request.rotate for request in writes)
    return TraceSummary(
        seconds=(
            max(request.delivered for request in requests)
            - min(request.arrival for request in requests)
        )
        / 1e9,
        kinds={kind: _summarize_kind(of) for kind, of in of_kind.items()},
        head_waited_s=rotate / 1e9,
        head_moved_s=sum(request.seek for request in requests) / 1e9,
        head_transferred_s=sum(request.transfer for request in requests) / 1e9,
        revolutions_waited=rotate / trace.revolution_ns,
        revolutions_per_write=for_writes / trace.revolution_ns / len(writes) if writes else 0.0,
    )


def _summarize_kind(requests: list[TracedRequest]) -> KindSummary:
    times = sorted((request.done - request.arrival) / 1e6 for request in requests)
    return KindSummary(
        requests=len(requests),
        merged=sum("merged" in request.flags for request in requests),
        cached=sum(
            "cached" in request.flags or "read-ahead" in request.flags for request in requests
        ),
        fua=sum("fua" in request.flags for request in requests),
        failed=sum("failed" in request.flags for request in requests),
        bytes=512 * sum(request.count for request in requests),
        mean_ms=statistics.fmean(times),
        p99_ms=times[min(len(times) - 1, len(times) * 99 // 100)],
        max_ms=times[-1],
    )
