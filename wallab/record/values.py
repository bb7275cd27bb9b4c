"""The figures that a table may show of a sample: their names, titles and digits."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from wallab.record.samples import Sample


class Value(msgspec.Struct, frozen=True):
    """A figure as a table shows it."""

    title: str
    digits: int
    less_is_better: bool = False
    ideal: str = ""
    """The name of the figure that is its upper bound."""


PERCENTILES = ("p50", "p90", "p95", "p99", "max")

VALUES = {
    "tps": Value("TPS", 1),
    "rate": Value("transactions, requests or seeks/s", 1),
    "cpu_percent": Value("CPU, % of one core", 0),
    "context_switches_per_tx": Value("context switches/tx", 2),
    "tpm": Value("New-Orders a minute, real", 0, ideal="tpm_ideal"),
    "tpm_ideal": Value("ideal", 0),
    "tpm_share": Value("real / ideal, %", 1),
    "p90_s": Value("90th percentile, s", 3),
    "archived": Value("segments archived", 0),
    "archive_cached_mb": Value("archive in memory, MB", 0),
    "client_cpus": Value("CPUs of the clients alone", 0),
    "cache_full_s": Value("drive's cache full after, s", 1),
    "file_write_mb_s": Value("files: written, MB/s", 1),
    "file_rewrite_mb_s": Value("files: rewritten, MB/s", 1),
    "file_read_mb_s": Value("files: read, MB/s", 1),
    "creates_s": Value("files created/s", 0),
    "fsyncs_s": Value("fsyncs/s", 1),
    "file_p95_ms": Value("request p95, ms", 2, True),
    "scan_ms": Value("scan, ms", 0, True),
    "scan_mb_s": Value("scan, MB/s", 1),
    "drive_read_kb": Value("kB a drive read", 0),
    **{name: Value(f"latency {name}, ms", 2, True) for name in PERCENTILES},
    "lag": Value("schedule lag (part of latency), ms", 2, True),
    "lag_max": Value("longest schedule lag, ms", 2, True),
    "server_cpu": Value("server's CPU ms/tx", 3, True),
    "client_cpu": Value("pgbench's CPU ms/tx", 3, True),
    "full_page_images": Value("full-page images/tx", 3, True),
    "wal_writes": Value("WAL writes/tx", 3, True),
    "wal_write_kb": Value("kB a WAL write", 1),
    "data_reads": Value("data drive's reads/tx", 2),
    "data_writes": Value("data drive's writes/tx", 2),
    "data_busy": Value("data drive busy, %", 0),
    "memory_limit_mb": Value("memory, MB", 0),
    "steadiness": Value("TPS of the second half by that of the first", 3),
}


def of(sample: "Sample", name: str) -> float | None:
    """Return the sample's figure of that name; None if it has none."""
    if sample.figures is None:
        return None
    derive = _DERIVED.get(name)
    return derive(sample) if derive else sample.values.get(name)


def _tps(sample: "Sample") -> float | None:
    return sample.figures.tps if sample.figures else None


def _cpu_percent(sample: "Sample") -> float | None:
    """Return the processor time of server and clients, in percent of one core."""
    if sample.figures is None or sample.cpu_seconds is None or not sample.figures.transactions:
        return None
    if not sample.figures.seconds:
        return None
    used = sample.cpu_seconds.server + sample.cpu_seconds.client
    return 100 * used / sample.figures.seconds


def _cache_full(sample: "Sample") -> float | None:
    """Return when the data drive's cache was full, in seconds."""
    cache = sample.series.get("drive_cache_mb")
    return cache.full_after if cache else None


def _latency(name: str) -> Callable[["Sample"], float | None]:
    def derive(sample: "Sample") -> float | None:
        course = sample.figures.course if sample.figures else None
        return getattr(course.latency_ms, name) if course else None

    return derive


def _lag(name: str) -> Callable[["Sample"], float | None]:
    def derive(sample: "Sample") -> float | None:
        lag = sample.figures.lag if sample.figures else None
        return getattr(lag, name) if lag else None

    return derive


def _steadiness(sample: "Sample") -> float | None:
    course = sample.figures.course if sample.figures else None
    first, second = course.halves_tps if course else (0.0, 0.0)
    return second / first if first else None


def _each(total: float | None, sample: "Sample") -> float | None:
    """Return a total by transaction."""
    transactions = sample.figures.transactions if sample.figures else 0
    return total / transactions if total is not None and transactions else None


def _wal_write_kb(sample: "Sample") -> float | None:
    """Return the mean size of the server's writes to the WAL, in kB."""
    if sample.wal is None or not sample.wal.writes or sample.wal.write_bytes is None:
        return None
    return sample.wal.write_bytes / 1024 / sample.wal.writes


def _data_drive(counter: str) -> Callable[["Sample"], float | None]:
    """Count by transaction on the drive that has the data."""

    def derive(sample: "Sample") -> float | None:
        reading = sample.drive.get("data")
        return _each(reading.counters.get(counter), sample) if reading else None

    return derive


def _data_busy(sample: "Sample") -> float | None:
    """Return the share of the measured time in which the data drive had work, in percent."""
    reading = sample.drive.get("data")
    busy = reading.counters.get("busy_ns") if reading else None
    if busy is None or sample.figures is None or not sample.figures.seconds:
        return None
    # What it still destages after the last transaction belongs to no part of that time.
    return min(100.0, busy / 1e7 / sample.figures.seconds)


_DERIVED: dict[str, Callable[["Sample"], float | None]] = {
    "tps": _tps,
    "rate": _tps,
    "cache_full_s": _cache_full,
    "cpu_percent": _cpu_percent,
    **{name: _latency(name) for name in PERCENTILES},
    "lag": _lag("mean"),
    "lag_max": _lag("max"),
    "server_cpu": lambda s: _each(s.cpu_seconds.server * 1000 if s.cpu_seconds else None, s),
    "client_cpu": lambda s: _each(s.cpu_seconds.client * 1000 if s.cpu_seconds else None, s),
    "full_page_images": lambda s: _each(s.wal.full_page_images if s.wal else None, s),
    "wal_writes": lambda s: _each(s.wal.writes if s.wal else None, s),
    "wal_write_kb": _wal_write_kb,
    "data_reads": _data_drive("reads"),
    "data_writes": _data_drive("writes"),
    "data_busy": _data_busy,
    "steadiness": _steadiness,
}
