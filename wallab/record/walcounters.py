"""What the WAL code did, as the server counted it."""

import msgspec

from wallab.record.number import Counter


class WalCounters(msgspec.Struct, frozen=True):
    """Counters of WAL activity since the server's start; None where the major has none."""

    writes: Counter | None
    """Calls that wrote WAL to the segments."""
    write_bytes: Counter | None
    """Bytes of those calls (from 18)."""
    syncs: Counter | None
    """Calls of fsync or fdatasync."""
    bytes: Counter | None
    """WAL generated."""
    full_page_images: Counter | None

    def since(self, earlier: "WalCounters") -> "WalCounters":
        """Return what was added since the earlier reading."""
        return WalCounters(
            *(
                None if new is None or old is None else new - old
                for new, old in zip(
                    msgspec.structs.astuple(self), msgspec.structs.astuple(earlier), strict=True
                )
            )
        )
