"""First file systems of a kernel: archives in which only names and contents stand."""

from collections.abc import Mapping


def archive(files: Mapping[str, bytes | None]) -> bytes:
    """Return a first file system of programs by their path, and of folders, which are None.

    A folder `dev` gets the console that the kernel gives to the first program.
    """
    entries = [
        _entry(path, 0o040755) if data is None else _entry(path, 0o100755, data)
        for path, data in files.items()
    ]
    entries.append(_entry("dev/console", 0o020600, device=(5, 1)))
    return b"".join([*entries, _entry("TRAILER!!!", 0)])


def _entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """Return one file of an archive (Documentation/driver-api/early-userspace/buffer-format)."""
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
