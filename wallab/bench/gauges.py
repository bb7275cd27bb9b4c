"""What the gauges of `wallab.record.gauges` read on a stage, and the most that there can be."""

from collections.abc import Callable

from wallab.bench.stage import Stage
from wallab.machine import pagecache
from wallab.record.gauges import MB

Read = Callable[[Stage], float | None]


def _dirty(stage: Stage) -> float | None:
    """Return what only the cache of the data drive holds, in MB."""
    dirty = stage.drives["data"].reading().counters.get("dirty_bytes")
    return None if dirty is None else dirty / MB


def _cache_size(stage: Stage) -> float | None:
    size = stage.drives["data"].cache_bytes()
    return None if size is None else size / MB


def _page_cache(stage: Stage) -> float | None:
    """Return the page cache that counts as the server's and its archiver's, in MB."""
    return stage.group.page_cache() / MB if stage.group else None


def _memory(stage: Stage) -> float | None:
    return stage.group.limit / MB if stage.group else None


def _archived(stage: Stage) -> float | None:
    return pagecache.resident(stage.archive) / MB


READ: dict[str, Read] = {
    "drive_cache_mb": _dirty,
    "page_cache_mb": _page_cache,
    "archive_cached_mb": _archived,
}
"""Those that the stage tells; the others are left to the workload."""

LIMIT: dict[str, Read] = {"drive_cache_mb": _cache_size, "page_cache_mb": _memory}
