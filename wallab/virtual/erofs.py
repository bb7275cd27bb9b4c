"""File systems as images: EROFS, uncompressed, of nothing but names and contents.

Same files, same bytes: no times, no owners, and whatever order they are named in. See
Documentation/filesystems/erofs.rst of the kernel.
"""

import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from wallab.virtual import elf

_MAGIC = 0xE0F5E1E2
_BLOCK = 4096
_INODE = 32
"""Bytes of a compact inode."""
_KINDS = {stat.S_IFREG: 1, stat.S_IFDIR: 2, stat.S_IFLNK: 7}


class Entry(msgspec.Struct, frozen=True):
    """A file, a symbolic link or a folder, by the first of these that is given."""

    file: Path | None = None
    """Whose content it has."""
    text: bytes | None = None
    link: str | None = None
    executable: bool = False
    loaded: bool = False
    """Whether a program, or a library, is there only as far as it is loaded."""

    @property
    def mode(self) -> int:
        """Its type and rights."""
        if self.link is not None:
            return stat.S_IFLNK | 0o777
        if self.file is None and self.text is None:
            return stat.S_IFDIR | 0o755
        return stat.S_IFREG | (0o755 if self.executable else 0o644)

    def content(self) -> bytes:
        """What it holds; nothing if it is a folder."""
        if self.link is not None:
            return self.link.encode()
        if self.text is not None:
            return self.text
        data = self.file.read_bytes() if self.file else b""
        return elf.loaded(data) if self.loaded else data


Tree = Mapping[str, Entry]
"""Path without a leading slash -> what is there; folders above are implied."""


def write(tree: Tree, image: BinaryIO) -> None:
    """Write the image: one block of nothing and the superblock, inodes, folders, contents."""
    whole = _with_folders(tree)
    numbers = {path: number for number, path in enumerate(whole)}
    first = 1
    area = -(-(len(whole) * _INODE) // _BLOCK)
    place = first + area
    listings: dict[str, bytes] = {}
    for path, entry in whole.items():
        if stat.S_ISDIR(entry.mode):
            listings[path] = _listing(path, whole, numbers)
    image.truncate(0)
    inodes = bytearray()
    for path, entry in whole.items():
        content = listings.get(path)
        if content is None:
            content = entry.content()
        links = 2 if path in listings else 1
        inodes += struct.pack(
            "<HHHHIIIIHHI", 0, 0, entry.mode, links, len(content), 0,
            place if content else 0xFFFFFFFF, numbers[path] + 1, 0, 0, 0,
        )  # fmt: skip
        image.seek(place * _BLOCK)
        image.write(content + bytes(-len(content) % _BLOCK))
        place += -(-len(content) // _BLOCK)
    image.seek(first * _BLOCK)
    image.write(inodes)
    image.seek(1024)
    superblock = struct.pack(
        "<IIIBBHQQIIII16s16sI", _MAGIC, 0, 0, 12, 0, numbers[""], len(whole), 0, 0, place, first,
        0, b"", b"", 0,
    )  # fmt: skip
    image.write(superblock)


def _with_folders(tree: Tree) -> dict[str, Entry]:
    """Return the tree with the folders above everything, the root first, sorted by path."""
    whole = {"": Entry(), **tree}
    for path in tree:
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            whole.setdefault(above, Entry())
    return dict(sorted(whole.items()))


def _children(path: str, whole: Tree) -> Iterator[tuple[bytes, str]]:
    begin = f"{path}/" if path else ""
    yield b".", path
    yield b"..", path.rpartition("/")[0]
    for other in whole:
        if other != path and other.startswith(begin) and "/" not in other[len(begin) :]:
            yield other[len(begin) :].encode(), other


def _listing(path: str, whole: Tree, numbers: Mapping[str, int]) -> bytes:
    """Return a folder's content: blocks of entries, sorted by name, each followed by the names."""
    blocks: list[list[tuple[bytes, str]]] = [[]]
    room = _BLOCK
    for name, target in sorted(_children(path, whole)):
        need = 12 + len(name)
        if need > room:
            blocks.append([])
            room = _BLOCK
        blocks[-1].append((name, target))
        room -= need
    packed = []
    for block in blocks:
        heads, names = b"", b""
        for name, target in block:
            kind = _KINDS[stat.S_IFMT(whole[target].mode)]
            begin = 12 * len(block) + len(names)
            heads += struct.pack("<QHBB", numbers[target], begin, kind, 0)
            names += name
        packed.append(heads + names)
    *full, last = packed
    return b"".join(part.ljust(_BLOCK, b"\0") for part in full) + last
