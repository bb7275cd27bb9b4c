"""First file systems of a kernel: archives in which only names, rights and contents stand."""


def entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """Return one file of an archive (Documentation/driver-api/early-userspace/buffer-format)."""
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def end() -> bytes:
    """Return what ends an archive."""
    return entry("TRAILER!!!", 0)
