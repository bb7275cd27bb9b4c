"""Positive controls: arrangements that must lose.

A campaign in which one of them survives has not proved anything: its cuts, its cells or its
oracle are too mild.
"""

import msgspec

from wallab.record.writecache import WriteCache


class PositiveControl(msgspec.Struct, frozen=True):
    """A way of breaking the promise that a commit is durable."""

    about: str
    filesystem: str = "xfs"
    write_cache: WriteCache = "on"
    """Of the WAL drive."""
    mount_options: tuple[str, ...] = ()
    """Of the WAL drive's file system."""
    flush_lies: bool = False
    settings: dict[str, str] = {}
    torn: bool = False
    """Cut while a checkpoint has pages in the data drive's cache, half of which is kept."""


CONTROLS = {
    "unflushed": PositiveControl(
        about="the drive's cache is on and the kernel is told that it is not",
        write_cache="on-unflushed",
    ),
    "lying-flush": PositiveControl(
        about="the drive acknowledges FLUSH at once and keeps the data in its cache",
        flush_lies=True,
    ),
    "no-barrier": PositiveControl(
        about="ext4 mounted with barrier=0 on a drive whose cache is on",
        filesystem="ext4",
        mount_options=("barrier=0",),
    ),
    "fsync-off": PositiveControl(about="fsync=off", settings={"fsync": "off"}),
    "torn-pages": PositiveControl(
        about="full_page_writes=off, and a cut that tears pages of the data drive",
        settings={"full_page_writes": "off"},
        torn=True,
    ),
}

ATTEMPTS = 20
"""Cuts within which a control must have lost. Each loses nearly always, so one is mostly enough."""
