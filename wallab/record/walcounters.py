"""What the WAL code did, as the server counted it."""

import msgspec


class WalCounters(msgspec.Struct, frozen=True):
    """Counters of WAL activity since the server's start; None where the major has none."""

    writes: int | None
    """Calls that wrote WAL to the segments."""
    write_bytes: int | None
    """Bytes of those calls (from 18)."""
    syncs: int | None
    """Calls of fsync or fdatasync."""
    bytes: int | None
    """WAL generated."""
    full_page_images: int | None

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
