"""What can be looked at over time while a sample is measured: names, titles, units."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from wallab.machine import pagecache

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed

MB = 1e6
"""Bytes of a megabyte, as the makers of drives count."""

Read = Callable[["TestBed"], float | None]


def _unknown(bed: "TestBed") -> None:
    return None


class Gauge(msgspec.Struct, frozen=True):
    """A figure that changes while a sample is measured."""

    title: str
    unit: str
    """Gauges of the same unit are drawn on the same axis."""
    read: Read | None = None
    """None where the test bed has no such thing; no function where the workload itself tells."""
    limit: Read = _unknown
    """The most that there can be."""


def _dirty(bed: "TestBed") -> float | None:
    """Return what only the cache of the data drive holds, in MB."""
    dirty = bed.drives["data"].reading().counters.get("dirty_bytes")
    return None if dirty is None else dirty / MB


def _cache_size(bed: "TestBed") -> float | None:
    size = bed.drives["data"].cache_bytes()
    return None if size is None else size / MB


def _page_cache(bed: "TestBed") -> float | None:
    """Return the page cache that counts as the server's and its archiver's, in MB."""
    return bed.group.page_cache() / MB if bed.group else None


def _memory(bed: "TestBed") -> float | None:
    return bed.group.limit / MB if bed.group else None


def _archived(bed: "TestBed") -> float | None:
    return pagecache.resident(bed.archive) / MB


GAUGES = {
    "rate": Gauge("transactions, requests or seeks", "a second"),
    "drive_cache_mb": Gauge("in the drive's cache only", "MB", _dirty, _cache_size),
    "page_cache_mb": Gauge("page cache", "MB", _page_cache, _memory),
    "archive_cached_mb": Gauge("of it archived WAL", "MB", _archived),
}
