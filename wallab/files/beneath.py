"""Files of a tree that others write to as well: no link in it leads anywhere.

Whoever may write to a tree can put a link in the place of a file or folder. Names are taken here
one component at a time, from the root on, and none is followed: OSError where one is a link, or
where what should be a folder or plain file is something else.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Content(msgspec.Struct, frozen=True):
    """A file."""

    bytes: bytes
    mode: int
    """Its permissions."""
    stamp: int
    """When it was changed, ns."""


@contextlib.contextmanager
def _folder(root: Path, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the open folder that holds the file, and the file's last name."""
    *folders, last = name.split("/")
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for folder in folders:
            _check(folder)
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=descriptor)
            below = _open_folder(folder, descriptor)
            os.close(descriptor)
            descriptor = below
        _check(last)
        yield descriptor, last
    finally:
        os.close(descriptor)


def _open_folder(folder: str, within: int) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    except NotADirectoryError:
        if stat.S_ISREG(os.stat(folder, dir_fd=within, follow_symlinks=False).st_mode):
            # Nothing is below a plain file, and nothing leads elsewhere.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder) from None
        raise


def _check(part: str) -> None:
    if part in {"", ".", ".."} or "\0" in part:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), part)


def read(root: Path, name: str) -> Content | None:
    """Return the file below the root; None if there is none."""
    try:
        with _folder(root, name) as (folder, last):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(last, flags, dir_fd=folder), "rb") as stream:
                status = os.fstat(stream.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "no plain file", name)
                return Content(stream.read(), stat.S_IMODE(status.st_mode), status.st_mtime_ns)
    except FileNotFoundError:
        return None


def write(root: Path, name: str, content: Content) -> None:
    """Put the file there, changed now, instead of what has its name, with the folders above it."""
    with _folder(root, name, make=True) as (folder, last):
        _remove(last, folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(last, flags, 0o600, dir_fd=folder), "wb") as stream:
            stream.write(content.bytes)
            os.fchmod(stream.fileno(), content.mode)


def remove(root: Path, name: str) -> None:
    """Remove the file, or the link or empty folder that is in its place, if there is one."""
    with contextlib.suppress(FileNotFoundError), _folder(root, name) as (folder, last):
        _remove(last, folder)


def _remove(last: str, folder: int) -> None:
    try:
        os.unlink(last, dir_fd=folder)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        os.rmdir(last, dir_fd=folder)


def set_stamp(root: Path, name: str, stamp: int) -> None:
    """Let the file have been changed then, ns."""
    with _folder(root, name) as (folder, last):
        os.utime(last, ns=(stamp, stamp), dir_fd=folder, follow_symlinks=False)
