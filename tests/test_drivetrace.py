"""Traces of the simulated drive, read and summed up."""

import struct
from pathlib import Path

import pytest

from wallab.drives import trace as drivetrace
from wallab.errors import LabError

MS = 1_000_000
TURN = 8 * MS


def record(
    kind: int, arrival: int, took: int, *, rotate: int = 0, seek: int = 0, flags: int = 0
) -> bytes:
    """A record as in drive/TRACE.md; times in ms."""
    done = (arrival + took) * MS
    times = (1, 1, arrival * MS, arrival * MS, done, done, 0, 0, seek * MS, rotate * MS, MS)
    return struct.pack("<12qIHH", *times, 4096, 16, kind, flags)


def written(folder: Path, *records: bytes, version: int = 1, rest: bytes = b"") -> Path:
    """A file of them, whose drive turns in 8 ms."""
    file = folder / "trace"
    head = struct.pack("<8sIIqqq24x", b"WALDRIVE", version, 104, TURN, 0, 0)
    file.write_bytes(head + b"".join(records) + rest)
    return file


def test_summed_up(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        record(1, 100, 9, rotate=8, flags=1),
        record(1, 100, 11, flags=2),
        record(1, 110, 16, rotate=4, seek=2),
        record(2, 126, 8),
        record(3, 126, 8, rotate=6),
        record(0, 140, 10, flags=4 | 8),
        rest=b"half a record",
    )
    trace = drivetrace.read(file)
    assert trace.requests[0].flags == ("fua",)
    assert (trace.requests[0].sector, trace.requests[0].count) == (4096, 16)
    summary = drivetrace.summarize(trace)
    assert summary.seconds == pytest.approx(0.05)
    assert summary.head_waited_s == pytest.approx(0.018)
    assert summary.head_moved_s == pytest.approx(0.002)
    assert summary.revolutions_waited == pytest.approx(18 / 8)
    assert summary.revolutions_per_write == pytest.approx(12 / 8 / 2)
    writes = summary.kinds["write"]
    assert (writes.requests, writes.merged, writes.fua, writes.failed) == (3, 1, 1, 0)
    assert writes.bytes == 3 * 8192
    assert (writes.mean_ms, writes.p99_ms, writes.max_ms) == (12, 16, 16)
    assert summary.kinds["read"].cached == 1
    assert list(summary.kinds) == ["read", "write", "flush", "destage"]


def test_what_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 200)
    with pytest.raises(LabError, match="no trace of a drive"):
        drivetrace.read(tmp_path / "other")
    with pytest.raises(LabError, match="No such file"):
        drivetrace.read(tmp_path / "none")
    with pytest.raises(LabError, match="of version 2"):
        drivetrace.read(written(tmp_path, version=2))
    with pytest.raises(LabError, match="no requests"):
        drivetrace.summarize(drivetrace.read(written(tmp_path)))


def test_garbage_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, record(1, 100, 9), record(9, 110, 9))
    with pytest.raises(LabError, match=r"record 2: a request of kind 9; expected one of 0 to 3"):
        drivetrace.read(file)
    head = struct.pack("<8sIIqqq24x", b"WALDRIVE", 1, 104, 0, 0, 0)
    file.write_bytes(head + record(1, 100, 9))
    with pytest.raises(LabError, match="a revolution of 0 ns; expected more than 0"):
        drivetrace.read(file)
