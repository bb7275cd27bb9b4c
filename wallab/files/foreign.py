"""Take what somebody else wrote, such as a stranger's build: any name may mean anything there.

Folders are opened one by one below the first, never through a link, and what was opened is what is
looked at and read. The copies are new files of the lab's own.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from wallab.errors import LabError

DEEPEST = 40
"""Folders in one another; PostgreSQL's trees have 10."""
LARGEST = 4 << 30
"""Bytes in all; an installed server has 50 MB."""
MOST = 50_000
"""Files; PostgreSQL's trees have 8,000."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


class Refused(LabError):
    """Something in the tree that no tree of the kind has; the message says what and where."""


def printable(text: str) -> str:
    """Return a stranger's words without what would do something to a terminal."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "?" for character in text
    )


def _refuse(path: PurePosixPath, why: str) -> Refused:
    return Refused(f"{printable(str(path))}: {printable(why)}")


@contextmanager
def _opened(folder: Path, inner: PurePosixPath) -> Iterator[int]:
    """Open a folder below one whose name and parents are the lab's own."""
    descriptor = os.open(folder, _FOLDER)
    try:
        for part in inner.parts:
            if part in {"..", "/"}:
                raise _refuse(inner, "leads out of the tree")
            try:
                below = os.open(part, _FOLDER, dir_fd=descriptor)
            except OSError as error:
                if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                    raise _refuse(inner, f"{part} is no folder") from None
                raise
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def copy(folder: Path, inner: str, target: Path, owner: int) -> None:
    """Copy folder/inner to the target, which must not exist; what is `inner` may be a stranger's.

    Regular files, folders, and links to a neighbour are taken, if they are the owner's (a user's
    number) and have no rights that others lack. Refused for anything else, OSError where the lab
    itself cannot read or write.
    """
    with _opened(folder, PurePosixPath(inner)) as source:
        target.mkdir(mode=0o755)
        _Copy(owner).folder(source, target, PurePosixPath())


def copy_file(folder: Path, inner: str, target: Path, owner: int) -> None:
    """Copy the one regular file folder/inner to the target, which must not exist."""
    path = PurePosixPath(inner)
    with _opened(folder, path.parent) as source:
        _Copy(owner).entry(source, path.name, target, path)


def open_file(file: Path, owner: int) -> IO[str]:
    """Open a regular file of the owner's, in a folder whose own name and parents are the lab's.

    Refused for anything else, OSError for a link, and where the lab itself cannot read.
    """
    descriptor = os.open(file, _FILE)
    try:
        _Copy(owner).look_at_file(descriptor, PurePosixPath(file.name))
        return os.fdopen(descriptor, errors="replace")
    except BaseException:
        os.close(descriptor)
        raise


class _Copy:
    """One copy, and what it has taken so far."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._bytes = 0
        self._files = 0
        self._taken: dict[tuple[int, int], Path] = {}
        """Files with several names -> the first copy."""

    def folder(self, source: int, target: Path, path: PurePosixPath) -> None:
        """Copy what is in the opened folder."""
        if len(path.parts) > DEEPEST:
            raise _refuse(path, f"more than {DEEPEST} folders in one another")
        with os.scandir(source) as entries:
            names = sorted(entry.name for entry in self._counted(entries, path))
        for name in names:
            self.entry(source, name, target / name, path / name)

    def _counted(
        self, entries: Iterator[os.DirEntry[str]], path: PurePosixPath
    ) -> Iterator[os.DirEntry[str]]:
        for entry in entries:
            self._files += 1
            if self._files > MOST:
                raise _refuse(path, f"more than {MOST} files")
            yield entry

    def entry(self, source: int, name: str, target: Path, path: PurePosixPath) -> None:
        """Copy one entry of the opened folder."""
        state = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISLNK(state.st_mode):
            leads = os.readlink(name, dir_fd=source)
            if "/" in leads or leads in {"", ".", ".."}:
                raise _refuse(path, f"a link to {leads!r}, which is not beside it")
            target.symlink_to(leads)
        elif stat.S_ISDIR(state.st_mode):
            below = os.open(name, _FOLDER, dir_fd=source)
            try:
                self._look(below, path)
                target.mkdir(mode=0o755)
                self.folder(below, target, path)
            finally:
                os.close(below)
        elif stat.S_ISREG(state.st_mode):
            self._file(source, name, target, path)
        else:
            raise _refuse(path, _KINDS.get(stat.S_IFMT(state.st_mode), "no file"))

    def _look(self, descriptor: int, path: PurePosixPath) -> os.stat_result:
        """Refuse what is another's, and what gives rights."""
        state = os.fstat(descriptor)
        if state.st_uid != self._owner:
            raise _refuse(path, f"belongs to user {state.st_uid}, not to {self._owner}")
        # A folder's set-group-ID is inherited from where it was made.
        if state.st_mode & stat.S_ISUID or (
            state.st_mode & stat.S_ISGID and not stat.S_ISDIR(state.st_mode)
        ):
            raise _refuse(path, "has a set-user-ID or set-group-ID bit")
        if "security.capability" in _attributes(descriptor):
            raise _refuse(path, "has capabilities")
        return state

    def look_at_file(self, descriptor: int, path: PurePosixPath) -> os.stat_result:
        """Refuse what is no regular file, too."""
        state = self._look(descriptor, path)
        if not stat.S_ISREG(state.st_mode):
            raise _refuse(path, _KINDS.get(stat.S_IFMT(state.st_mode), "no file"))
        return state

    def _file(self, source: int, name: str, target: Path, path: PurePosixPath) -> None:
        descriptor = os.open(name, _FILE, dir_fd=source)
        try:
            state = self.look_at_file(descriptor, path)
            key = (state.st_dev, state.st_ino)
            if state.st_nlink > 1 and key in self._taken:
                os.link(self._taken[key], target)
                return
            mode = 0o755 if state.st_mode & stat.S_IXUSR else 0o644
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            copied = os.open(target, flags, mode)
            try:
                while part := os.read(descriptor, 1 << 20):
                    self._bytes += len(part)
                    if self._bytes > LARGEST:
                        raise _refuse(path, f"more than {LARGEST >> 30} GB in all")
                    _write(copied, part)
                os.fchmod(copied, mode)
                os.utime(copied, ns=(state.st_mtime_ns, state.st_mtime_ns))
            finally:
                os.close(copied)
            self._taken[key] = target
        finally:
            os.close(descriptor)


def _attributes(descriptor: int) -> list[str]:
    try:
        return os.listxattr(descriptor)
    except OSError:  # the file system has none
        return []


def _write(descriptor: int, part: bytes) -> None:
    rest = memoryview(part)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
