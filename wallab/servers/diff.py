"""Unified diffs: which files they touch, and whether they are whole."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from wallab.errors import LabError

TOP_FOLDERS = frozenset({"src", "contrib", "doc", "config"})
"""Folders at the top of a PostgreSQL tree: a path that begins so has no prefix (-p0)."""

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_GIT = re.compile(rb'diff --git "?(?P<old>.+?)"? "?(?P<new>\S+?)"?$')
_EXTENDED = re.compile(rb"(?:rename|copy) (?:from|to) (?P<path>.+)$")
_NO_FILE = re.compile(rb"(?:new file|new|deleted file) mode (?P<mode>120000|160000)")


class FileDiff(msgspec.Struct):
    """The part of a diff that is about one file."""

    names: list[str]
    """The paths that it names, as they stand in it, each once; without /dev/null."""
    lines: list[bytes]
    hunks: int = 0
    extended: list[str] = []
    """Paths of a rename or copy, which never have a prefix."""


def _path(field: bytes) -> str:
    return field.split(b"\t")[0].rstrip(b"\r\n ").decode(errors="surrogateescape")


class _Reader:
    """Reads a diff line by line; whatever stands between files is left out."""

    def __init__(self, text: bytes, where: str) -> None:
        self._lines = text.splitlines(keepends=True)
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

    def _name(self, path: str) -> None:
        if path not in ("/dev/null", *self.files[-1].names):
            self.files[-1].names.append(path)

    def _step(self, line: bytes) -> None:
        if line.startswith(b"--- ") and self._look(1).startswith(b"+++ "):
            if not (self.files and self._in_git_header()):
                self.files.append(FileDiff([], []))
            # They say more exactly than “diff --git” what it named.
            self.files[-1].names = []
            for header in (line, self._look(1)):
                self._name(_path(header[4:]))
            self._take(2)
            self._hunks()
        elif found := _GIT.match(line.rstrip()):
            self.files.append(FileDiff([], []))
            for group in ("old", "new"):
                self._name(_path(found[group]))
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

    def _in_git_header(self) -> bool:
        current = self.files[-1]
        return not current.hunks and current.lines[0].startswith(b"diff --git")

    def _git_header(self) -> None:
        """Take the lines that git puts between “diff --git” and “---”."""
        while re.match(
            rb"(old|new|deleted|similarity|dissimilarity|rename|copy|index) ", self._look(0)
        ):
            line = self._look(0).rstrip()
            if found := _EXTENDED.match(line):
                self.files[-1].extended.append(_path(found["path"]))
            if _NO_FILE.match(line):
                raise self._error("is a symbolic link or a submodule, which no patch needs")
            self._take()
        if self._look(0).startswith((b"GIT binary patch", b"Binary files ")):
            raise self._error("is binary")

    def _hunks(self) -> None:
        while found := _HUNK.match(self._look(0)):
            self.files[-1].hunks += 1
            self._take()
            old, new = (int(count) if count is not None else 1 for count in found.groups())
            while old > 0 or new > 0:
                kind = self._look(0)[:1]
                if kind not in (b" ", b"+", b"-", b"\\", b"\n", b"\r"):
                    raise self._error(f"hunk {self.files[-1].hunks} is cut off or damaged")
                old -= kind in (b" ", b"-", b"\n", b"\r")
                new -= kind in (b" ", b"+", b"\n", b"\r")
                self._take()
            if self._look(0).startswith(b"\\"):
                self._take()
        if not self.files[-1].hunks:
            raise self._error("has no hunk")

    def _error(self, what: str, *, of_current: bool = True) -> LabError:
        names = self.files[-1].names if of_current and self.files else []
        return LabError(f"patch {self._where}: {f'{names[-1]}: ' if names else ''}{what}")


def read(text: bytes, where: str) -> list[FileDiff]:
    """Return the files of a unified diff, in order; none if the text holds no diff.

    LabError, which names `where` and the file, for what is binary, damaged or a context diff.
    """
    return _Reader(text, where).read()


def depth(files: Iterable[FileDiff]) -> int:
    """Return how many components stand before the tree's own paths: 0 or 1, as patch -p has it."""
    names = [PurePosixPath(name) for file in files for name in file.names]
    bare = all(len(name.parts) == 1 or name.parts[0] in TOP_FOLDERS for name in names)
    return 0 if bare else 1


def touched(files: list[FileDiff], where: str) -> list[str]:
    """Return the tree's paths that the files name, each once.

    LabError for a path that leads out of the tree, and where the files are none.
    """
    if not files:
        raise LabError(
            f"patch {where}: holds no unified diff (made by git or diff -u, with -p1 or -p0)"
        )
    strip = depth(files)
    names = [(name, name.split("/", strip)[-1]) for file in files for name in file.names]
    names += [(name, name) for file in files for name in file.extended]
    for path, name in names:
        parts = PurePosixPath(name).parts
        if not parts or parts[0] in ("/", ".git") or ".." in parts or '"' in name:
            raise LabError(f"patch {where}: leads out of the tree: {path}")
    return list(dict.fromkeys(name for _, name in names))


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
        if header and (found := _GIT.match(line.rstrip())):
            yield b"diff --git a/%b b/%b\n" % (found["old"], found["new"])
        elif header and line.startswith((b"--- ", b"+++ ")) and line[4:].strip() != b"/dev/null":
            yield line[:4] + {b"-": b"a/", b"+": b"b/"}[line[:1]] + line[4:]
        else:
            yield line
