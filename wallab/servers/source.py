"""A PostgreSQL source: an unpacked tree named by major, directory, tarball or git ref.

Sources are never modified: variants are built from copies, which `unpack` makes.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO

import msgspec

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.files import beneath, jsonfile
from wallab.files.digest import sha256
from wallab.files.strict import read_toml
from wallab.machine import container
from wallab.servers import debian, git, prebuilt


class Source(msgspec.Struct, frozen=True):
    """Where a tree comes from, and what tells it from every other."""

    kind: str
    """tarball, directory or git."""
    location: Path
    version: Annotated[str, msgspec.Meta(pattern=r"^\d+[\w.]*$")]
    """As configure knows it: 18.6, 19devel."""
    identity: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]+$")]
    """SHA-256 of the tarball or of the directory's files, or the commit."""
    official: bool = False
    """Whether this is a released tarball, which needs no more than its version for a name."""

    @property
    def major(self) -> int:
        """The major version: 18 of 18.6, 19 of 19devel."""
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]

    @property
    def label(self) -> str:
        """The folder's name below build/: the version, with part of the identity if need be."""
        return self.version if self.official else f"{self.version}-{self.identity[:8]}"


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A released tarball."""

    version: str
    sha256: str


class Releases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """patches/sources.toml."""

    address: str
    major: dict[str, Release]


def default(name: str) -> str:
    """Return the source to use where the user names none; an image has one of its own."""
    return prebuilt.default_source() or name


def resolve(name: str) -> Source:
    """Return the source of that name: a major version, directory, tarball or DIRECTORY@REF.

    LabError where there is none, or where it is no PostgreSQL source.
    """
    if container.image() == "lab":
        kept = prebuilt.origin(name)
        return Source(kept.source_kind, Path(name), kept.version, kept.source, official=True)
    if re.fullmatch(r"\d+", name):
        return _by_major(int(name))
    path = Path(name).expanduser()
    if path.is_dir():
        return _directory(path.resolve())
    if path.is_file():
        return _tarball(path.resolve())
    folder, at, ref = name.rpartition("@")
    if at and Path(folder).expanduser().is_dir():
        return _git(Path(folder).expanduser().resolve(), ref)
    raise LabError(
        f"source “{name}”: no such directory or tarball; name a major version (18), a directory, "
        "a tarball, or DIRECTORY@REF for a git ref of a local clone"
    )


def _version(configure: str, where: str) -> str:
    """Return the version that a configure script states."""
    if "PostgreSQL" in configure[:2000]:
        line = re.search(r"^PACKAGE_VERSION='(\d+[\w.]*)'$", configure, re.MULTILINE)
        if line:
            return line[1]
    raise LabError(
        f"source {where}: not a PostgreSQL source tree (its configure is not PostgreSQL's)"
    )


def _directory(path: Path) -> Source:
    try:
        configure = (path / "configure").read_text(errors="replace")
    except OSError as error:
        raise LabError(
            f"source {path}: not a PostgreSQL source tree ({error.strerror}: configure)"
        ) from None
    version = _version(configure, str(path))
    if (path / "config.status").exists():
        raise LabError(f"source {path}: was built in place; run “make distclean” in it first")
    digest = hashlib.sha256()
    for file in _files(path):
        name = os.fsencode(file.relative_to(path))
        digest.update(name + b"\0")
        try:
            if file.is_symlink():
                digest.update(os.fsencode(file.readlink()))
            elif content := beneath.read(path, os.fsdecode(name)):
                digest.update(hashlib.sha256(content.bytes).digest())
                digest.update(bytes([content.mode & 0o100 != 0]))
        except OSError as error:
            raise LabError(f"source {path}: cannot be read: {file}: {error.strerror}") from None
    return Source("directory", path, version, digest.hexdigest())


def _files(path: Path) -> Iterator[Path]:
    """The tree's files in order: what git would commit in a work tree, else all."""
    if not (path / ".git").exists():
        for folder, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                yield Path(folder) / name
        return
    true = {path}
    for entry in git.files(path):
        inner = PurePosixPath(os.fsdecode(entry))
        if inner.is_absolute() or ".." in inner.parts:
            raise LabError(f"source {path}: git names what is outside of it: {str(inner)!a}")
        file = path / inner
        # What lies behind a link is gone for git.
        if _without_links(file.parent, true) and (file.is_symlink() or file.is_file()):
            yield file


def _without_links(folder: Path, true: set[Path]) -> bool:
    """Whether no part of the folder's path is a link, below those that are known to be `true`."""
    if folder in true:
        return True
    if folder == folder.parent or folder.is_symlink() or not _without_links(folder.parent, true):
        return False
    true.add(folder)
    return True


def _git(path: Path, ref: str) -> Source:
    try:
        identity = git.commit(path, ref)
    except LabError:
        raise LabError(f"source {path}@{ref}: the clone has no such ref") from None
    try:
        configure = git.content(path, identity, "configure")
    except LabError:
        raise LabError(
            f"source {path}@{ref}: not a PostgreSQL source tree (no configure)"
        ) from None
    version = _version(configure.decode(errors="replace"), f"{path}@{ref}")
    return Source("git", path, version, identity)


def _tarball(path: Path, *, official: bool = False) -> Source:
    try:
        with tarfile.open(path) as archive:
            # The tarballs have configure near their beginning: stop there.
            for member in archive:
                parts = Path(member.name).parts
                if member.isfile() and parts[-1] == "configure" and len(parts) <= 2:
                    text = archive.extractfile(member).read()  # type: ignore[union-attr]
                    version = _version(text.decode(errors="replace"), str(path))
                    break
            else:
                raise LabError(f"source {path}: not a PostgreSQL source tarball (no configure)")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise LabError(f"source {path}: cannot be read as a tarball: {error}") from None
    digest = sha256(path)
    known = digest in {release.sha256 for release in releases().major.values()}
    return Source("tarball", path, version, digest, official or known)


def releases(file: Path | None = None) -> Releases:
    """Read patches/sources.toml; LabError where it is wrong."""
    return read_toml(file or paths.PATCHES / "sources.toml", Releases)


def _by_major(major: int) -> Source:
    """The newest tarball that was fetched once stays the one in use until the cache is cleared."""
    folder = paths.cache() / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / f"{major}.json"
    # Two commands that start together must not fetch the same at once.
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if record.exists():
            kept = jsonfile.read(record, Source, "remove it, and the source is fetched again")
            # The cache may have been copied from elsewhere, as into an image.
            kept = msgspec.structs.replace(kept, location=folder / kept.location.name)
            if kept.location.is_file() and sha256(kept.location) == kept.identity:
                return kept
        try:
            tarball = debian.fetch(major, folder)
        except debian.NotInDebian as reason:
            tarball = _download(major, folder, str(reason))
        source = _tarball(tarball, official=True)
        if source.major != major:
            raise LabError(f"source {major}: {tarball} holds PostgreSQL {source.version}")
        jsonfile.save(record, source)
        return source


def _download(major: int, folder: Path, reason: str) -> Path:
    """Fetch the pinned official tarball and check it."""
    known = releases()
    release = known.major.get(str(major))
    if release is None:
        raise LabError(
            f"source {major}: Debian's archive does not give it ({reason}), and "
            f"patches/sources.toml has no tarball of it; known: {', '.join(known.major)}. "
            "Name a directory, a tarball or a git ref instead."
        )
    address = os.environ.get("WALLAB_SOURCE_ADDRESS", known.address)
    address = address.replace("{version}", release.version)
    print(
        f"source: Debian's archive does not give it ({reason}); fetching {address}", file=sys.stderr
    )
    target = folder / f"postgresql-{release.version}.tar.bz2"
    partial = target.with_suffix(".partial")
    try:
        with urllib.request.urlopen(address, timeout=60) as answer, partial.open("wb") as out:  # noqa: S310
            shutil.copyfileobj(answer, out)
        digest = sha256(partial)
        if digest != release.sha256:
            raise MachineError(
                f"source {major}: {address} has SHA-256 {digest}, but patches/sources.toml says "
                f"{release.sha256}; it was not kept"
            )
        partial.replace(target)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise MachineError(
            f"source {major}: neither Debian's archive ({reason}) nor {address} ({error}) can be "
            "reached; download a PostgreSQL tarball elsewhere and name it: --source FILE"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    return target


def unpack(source: Source, target: Path) -> None:
    """Make a copy of the tree at the target, which must not exist."""
    with packed(source) as archive:
        extract(archive, str(source.location), target)


@contextmanager
def packed(source: Source) -> Iterator[BinaryIO]:
    """Open the tree as a tar archive, compressed or not, that can be read by anybody."""
    if source.kind == "tarball":
        with source.location.open("rb") as archive:
            yield archive
        return
    # With its own top folder, as tarballs have.
    with tempfile.TemporaryFile() as archive:
        if source.kind == "git":
            archive.write(git.archive(source.location, source.identity, "--prefix=tree/"))
        else:
            with tarfile.open(fileobj=archive, mode="w") as packing:
                for file in _files(source.location):
                    inside = f"tree/{file.relative_to(source.location)}"
                    packing.add(file, inside, recursive=False, filter=_anonymous)
        archive.seek(0)
        yield archive


def names(source: Source) -> Iterator[str]:
    """Yield the names of the tree's files, relative to it."""
    with packed(source) as archive, tarfile.open(fileobj=archive) as tree:
        for member in tree:
            if not member.isdir():
                yield member.name.removeprefix("./").partition("/")[2]


def recorded(name: str, source: Source) -> str:
    """Return a name by which the source of that name is found from any folder."""
    if re.fullmatch(r"\d+", name):
        return name
    ref = f"@{name.rpartition('@')[2]}" if source.kind == "git" else ""
    return f"{source.location}{ref}"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who owns the file: the user's name is no part of a tree."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


# First bytes -> tar's option; it looks itself only where it opens a file.
_COMPRESSIONS = {b"\x1f\x8b": "--gzip", b"BZh": "--bzip2", b"\xfd7zXZ\0": "--xz"}


def extract(archive: BinaryIO, name: str, target: Path) -> None:
    """Unpack the archive with tar(1), which lets nothing out of the target; that must not exist.

    A single folder at its top is left out. Python's tarfile is as careful only from 3.11.4 on.
    LabError, with the source's name, if that cannot be done.
    """
    target.mkdir(parents=True)
    begins = os.pread(archive.fileno(), 6, 0)
    compression = [option for magic, option in _COMPRESSIONS.items() if begins.startswith(magic)]
    result = subprocess.run(
        ["tar", "--extract", *compression, "--no-same-owner", "--directory", target, "--file", "-"],
        stdin=archive,
        capture_output=True,
        env=os.environ | {"LC_ALL": "C"},
    )
    if result.returncode:
        message = result.stderr.decode(errors="replace")
        if "No space left on device" in message:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        raise LabError(f"source {name}: cannot be unpacked: {message.strip()[-300:]}")
    inside = list(target.iterdir())
    if len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink():
        # Move the single top folder's content up.
        aside = target.with_name(target.name + ".top")
        inside[0].rename(aside)
        target.rmdir()
        aside.rename(target)
