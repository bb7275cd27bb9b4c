"""How the kernel must have the WAL open: what a wal_sync_method takes, and what a variant adds."""

from collections.abc import Collection

DIRECT = "O_DIRECT"

_OF_METHOD: dict[str, set[str]] = {
    "fdatasync": set(),
    "fsync": set(),
    "fsync_writethrough": set(),
    "open_datasync": {"O_DSYNC"},
    "open_sync": {"O_SYNC"},
    "fdatasync_direct": {DIRECT},
    "fsync_direct": {DIRECT},
    "open_datasync_direct": {DIRECT, "O_DSYNC"},
    "open_direct": {DIRECT, "O_SYNC"},
}
"""wal_sync_method -> flags, in any variant; those without any sync by a call of their own."""

METHODS = tuple(_OF_METHOD)
"""The values of wal_sync_method in any variant."""


def syncs_writes(method: str) -> bool:
    """Whether each write is synced by the method's flags, with no call of its own."""
    return not _OF_METHOD[method].isdisjoint({"O_DSYNC", "O_SYNC"})


def is_direct(method: str) -> bool:
    """Whether each write passes the kernel's cache by, in any variant that has the method."""
    return DIRECT in _OF_METHOD[method]


def expected(method: str, direct: Collection[str]) -> frozenset[str]:
    """Return the flags that a WAL segment must be open with; `direct`: the variant's own methods.

    A server may have more of them: stock before 16 takes O_DIRECT where nothing reads the WAL.
    """
    flags = _OF_METHOD.get(method, set())
    return frozenset(flags | {DIRECT} if method in direct else flags)
