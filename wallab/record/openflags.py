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


def expected(method: str, direct: Collection[str]) -> frozenset[str]:
    """Return the flags that a WAL segment must be open with; `direct`: the variant's own methods.

    A server may have more of them: stock before 16 takes O_DIRECT where nothing reads the WAL.
    """
    flags = _OF_METHOD.get(method, set())
    return frozenset(flags | {DIRECT} if method in direct else flags)
