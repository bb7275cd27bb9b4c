"""What can be looked at over time while a sample is measured: names, titles, units."""

import msgspec

MB = 1e6
"""Bytes of a megabyte, as the makers of drives count."""


class Gauge(msgspec.Struct, frozen=True):
    """A figure that changes while a sample is measured."""

    title: str
    unit: str
    """Gauges of the same unit are drawn on the same axis."""


GAUGES = {
    "rate": Gauge("transactions, requests or seeks", "a second"),
    "drive_cache_mb": Gauge("in the drive's cache only", "MB"),
    "page_cache_mb": Gauge("page cache", "MB"),
    "archive_cached_mb": Gauge("of it archived WAL", "MB"),
}
