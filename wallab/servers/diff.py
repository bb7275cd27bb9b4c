"""Unified diffs: which files they touch, as git reads them, and whether they are whole."""

import functools
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from wallab.errors import LabError
from wallab.servers import git

TOP_FOLDERS = frozenset({"src", "contrib", "doc", "config"})
"""Folders at the top of a PostgreSQL tree: a path that begins so has no prefix (-p0)."""

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_GIT = re.compile(rb'diff --git (?P<old>".+?"|.+?) (?P<new>".+"|\S+)$')
_EXTENDED = re.compile(rb"(old|new|deleted|similarity|dissimilarity|rename|copy|index) ")
_MODE = re.compile(rb"(?:(?:old|new|new file|deleted file) mode|index \S+) +(?P<mode>\S+)")
_OF_FILES = re.compile(rb"0*100[0-7]{3}")


class FileDiff(msgspec.Struct):
    """The part of a diff that is about one file."""

    lines: list[bytes]
    headers: list[str] = []
    """The paths in its header, as they stand there; without /dev/null."""
    hunks: list[int] = []
    """The first line of each in the old file."""


def _path(field: bytes) -> str:
    return field.split(b"\t")[0].strip(b'\r\n "').decode(errors="replace")


class _Reader:
    """Reads a diff line by line; whatever stands between files is left out."""

    def __init__(self, text: bytes, where: str) -> None:
        self._lines = [line + b"\n" for line in text.removesuffix(b"\n").split(b"\n")]
        self._where = where
        self._at = 0
        self.files: list[FileDiff] = []

    def read(self) -> list[FileDiff]:
        while self._at < len(self._lines):
            self._step(self._lines[self._at])
        return self.files

    def _look(self, ahead: int) -> bytes:
        at = self._at + ahead
        return self._lines[at] if at < len(self._lines) else b""

    def _take(self, count: int = 1) -> None:
        self.files[-1].lines += self._lines[self._at : self._at + count]
        self._at += count

    def _name(self, *paths: bytes) -> None:
        names = dict.fromkeys(map(_path, paths))
        self.files[-1].headers = [name for name in names if name != "/dev/null"]
        # Of two names git takes one, but who wrote the other meant no good.
        if any(".." in name.split("/") for name in names):
            raise self._error("leads out of the tree")

    def _step(self, line: bytes) -> None:
        if self._at_paths():
            self.files.append(FileDiff([]))
            self._paths()
        elif header := _GIT.match(line.rstrip()):
            self.files.append(FileDiff([]))
            self._name(header["old"], header["new"])
            self._take()
            self._git_header()
        elif line.startswith((b"GIT binary patch", b"Binary files ")):
            raise self._error("is binary", of_current=line.startswith(b"GIT"))
        elif line.startswith(b"*** ") and self._look(1).startswith(b"--- "):
            raise LabError(
                f"patch {self._where}: is a context diff; make a unified one (git diff, diff -u)"
            )
        else:
            self._at += 1

    def _at_paths(self) -> bool:
        return self._look(0).startswith(b"--- ") and self._look(1).startswith(b"+++ ")

    def _paths(self) -> None:
        """Take “---” and “+++”, which say more exactly than “diff --git” what it named."""
        self._name(self._look(0)[4:], self._look(1)[4:])
        self._take(2)
        self._hunks()

    def _git_header(self) -> None:
        """Take the lines that git puts between “diff --git” and the hunks."""
        while _EXTENDED.match(self._look(0)):
            mode = _MODE.match(self._look(0))
            if mode and not _OF_FILES.fullmatch(mode["mode"]):
                raise self._error("is a symbolic link or a submodule, which no patch needs")
            self._take()
        if self._look(0).startswith((b"GIT binary patch", b"Binary files ")):
            raise self._error("is binary")
        if self._at_paths():
            self._paths()

    def _hunks(self) -> None:
        hunks = self.files[-1].hunks
        while self._look(0).startswith(b"@@ "):
            header = _HUNK.match(self._look(0))
            hunks.append(int(header[1]) if header else 0)
            if header is None:
                raise self._error(f"hunk {len(hunks)} is cut off or damaged")
            old, new = (int(count) if count is not None else 1 for count in header.groups()[1:])
            self._take()
            while old > 0 or new > 0:
                kind = self._look(0)[:1]
                if kind not in (b" ", b"+", b"-", b"\\", b"\n", b"\r"):
                    raise self._error(f"hunk {len(hunks)} is cut off or damaged")
                old -= kind in (b" ", b"-", b"\n", b"\r")
                new -= kind in (b" ", b"+", b"\n", b"\r")
                self._take()
            if self._look(0).startswith(b"\\"):
                self._take()
        if not hunks:
            raise self._error("has no hunk")

    def _error(self, what: str, *, of_current: bool = True) -> LabError:
        names = self.files[-1].headers if of_current and self.files else []
        return LabError(f"patch {self._where}: {f'{names[-1]}: ' if names else ''}{what}")


def read(text: bytes, where: str) -> list[FileDiff]:
    """Return the files of a unified diff, in order; none if the text holds no diff.

    LabError, which names `where` and the file, for what is binary, damaged or a context diff.
    """
    # A header that nothing follows is prose, or a file of git diff -w.
    return [file for file in _Reader(text, where).read() if file.hunks or _of_itself(file)]


def _of_itself(file: FileDiff) -> bool:
    """Whether the header alone changes something."""
    return any(re.match(rb"(old|new|deleted|rename|copy) ", line) for line in file.lines)


def depth(files: Iterable[FileDiff]) -> int:
    """Return how many components stand before the tree's own paths: 0 or 1, as patch -p has it."""
    names = [PurePosixPath(name) for file in files for name in file.headers]
    bare = all(len(name.parts) == 1 or name.parts[0] in TOP_FOLDERS for name in names)
    return 0 if bare else 1


def touched(files: list[FileDiff], where: str) -> list[list[str]]:
    """Return the tree's paths that each of the files names.

    They are as git reads them, which is to apply them. LabError for what git does not take, for a
    path that leads out of the tree, and where the files are none.
    """
    if not files:
        raise LabError(
            f"patch {where}: holds no unified diff (made by git or diff -u, with -p1 or -p0)"
        )
    text = with_prefix(files)
    # Of a renamed file, git tells the new name.
    ends = [_names(text, where), _names(text, where, "--reverse")]
    if _from_the_last():
        ends[1].reverse()
    if {len(names) for names in ends} != {len(files)}:
        raise LabError(f"patch {where}: git does not read it as the {len(files)} files it shows")
    pairs = [list(dict.fromkeys(pair)) for pair in zip(*ends, strict=True)]
    for name in (name for pair in pairs for name in pair):
        parts = name.split("/")
        if not {"", ".", ".."}.isdisjoint(parts) or ".git" in (part.lower() for part in parts):
            raise LabError(f"patch {where}: leads out of the tree: {name}")
        if not name.isprintable():
            raise LabError(f"patch {where}: a file's name is no printable UTF-8: {name!a}")
    return pairs


@functools.cache
def _from_the_last() -> bool:
    """Whether git tells the files of a reversed patch from the last to the first: not all do."""
    two = b"".join(b"--- a/%b\n+++ b/%b\n@@ -1 +1 @@\n-x\n+y\n" % (n, n) for n in (b"a", b"b"))
    return _names(two, "", "--reverse") == ["b", "a"]


def _names(text: bytes, where: str, *options: str) -> list[str]:
    """Return a path for each file of the diff."""
    result = git.apply(text, "--numstat", "-z", *options)
    if result.returncode:
        reason = result.stderr.decode(errors="replace").strip().removeprefix("error: ")
        raise LabError(f"patch {where}: git does not take it: {reason}")
    lines = result.stdout.removesuffix(b"\0").split(b"\0")
    return [line.split(b"\t", 2)[2].decode(errors="surrogateescape") for line in lines]


def with_prefix(files: list[FileDiff]) -> bytes:
    """Return the diff of the files as patch -p1 takes it."""
    if depth(files) == 1:
        return b"".join(line for file in files for line in file.lines)
    return b"".join(line for file in files for line in _prefixed(file.lines))


def _prefixed(lines: list[bytes]) -> Iterable[bytes]:
    """Put a/ and b/ before the paths of a file's header."""
    header = True
    for line in lines:
        if line.startswith(b"@@ "):
            header = False
        if header and (names := _GIT.match(line.rstrip())):
            yield b"diff --git %b %b\n" % (_below(b"a/", names["old"]), _below(b"b/", names["new"]))
        elif header and line.startswith((b"--- ", b"+++ ")) and line[4:].strip() != b"/dev/null":
            yield line[:4] + _below({b"-": b"a/", b"+": b"b/"}[line[:1]], line[4:])
        else:
            yield line


def _below(folder: bytes, path: bytes) -> bytes:
    """Return the path, which may be quoted, below the folder."""
    quote = path[: path.startswith(b'"')]
    return quote + folder + path[len(quote) :]
