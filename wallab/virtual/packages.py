"""Debian packages fetched by apt and unpacked, never installed: no user needs root for that.

What the archive has replaced by something newer comes from its snapshots, by its version.
"""

import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from wallab import paths
from wallab.files import jsonfile
from wallab.progress import say

SNAPSHOT = "WALLAB_SNAPSHOT"
"""The environment's word for another archive of what there was."""

_SNAPSHOT = "https://snapshot.debian.org"
_SLOW = 1800
"""Seconds that fetching a package may take."""
_UNREACHABLE = 60
_STATUS = "/var/lib/dpkg/status"


class NotToBeHad(Exception):
    """A package, or something in it, cannot be had from here; the message says why."""


class Unpacked(msgspec.Struct, frozen=True):
    """Packages in a folder as in a root file system."""

    folder: Path
    versions: dict[str, str]
    """Package -> its version."""

    def program(self, name: str) -> Path | None:
        """Return a program of theirs."""
        places = (self.folder / place / name for place in ("usr/bin", "usr/sbin", "bin", "sbin"))
        return next((place for place in places if place.exists()), None)

    @property
    def environment(self) -> dict[str, str]:
        """What their programs take to find their libraries."""
        libraries = f"lib/{platform.machine()}-linux-gnu"
        folders = (self.folder / "usr" / libraries, self.folder / libraries)
        return {"LD_LIBRARY_PATH": ":".join(map(str, folders))}


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command in the folder; return what it prints, or raise NotToBeHad with its words."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=os.environ | {"LC_ALL": "C"}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=_SLOW, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        words = str(getattr(error, "stderr", None) or error).strip()
        short = " ".join(str(word) for word in command if not str(word).startswith(("-", "Dir::")))
        raise NotToBeHad(f"{short[:80]}: {words[-300:]}") from None
    return done.stdout


@functools.cache
def installed(names: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those of the packages that are installed."""
    command = ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${db:Status-Status}\n", *names]
    try:
        printed = subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:  # no Debian
        return {}
    states = [line.split("\t") for line in printed.splitlines()]
    return {name: version for name, version, state in states if state == "installed"}


class Apt:
    """apt's commands on the machine's own lists, or on lists of one's own where these are old."""

    def __init__(self, home: Path) -> None:
        """`home` takes what is fetched."""
        self._home = home
        self._options: tuple[str, ...] = ()

    def ask(self, *command: str) -> str:
        """Run apt-get or apt-cache; once more with new lists if it fails, then NotToBeHad."""
        name, *rest = command
        try:
            return run([name, *self._options, *rest], self._home)
        except NotToBeHad:
            if self._options:
                raise
            self._update()
            return run([name, *self._options, *rest], self._home)

    def _update(self) -> None:
        state = self._home / "apt"
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (state / folder).mkdir(parents=True)
        settings = (
            f"Dir::State={state}/state",
            f"Dir::State::status={_STATUS}",
            f"Dir::Cache={state}/cache",
            f"APT::Sandbox::User={'root' if os.geteuid() == 0 else ''}",
        )  # fmt: skip
        self._options = tuple(word for setting in settings for word in ("-o", setting))
        run(["apt-get", *self._options, "-qq", "update"], self._home)

    def with_missing(self, names: Sequence[str]) -> list[str]:
        """Return the packages and those that they depend on and that are not installed here."""
        printed = self.ask(
            "apt-get", "--simulate", "--reinstall", "--no-install-recommends", "install", *names
        )
        missing = re.findall(r"^Inst (\S+) ", printed, re.MULTILINE)
        return sorted({*names, *(name.partition(":")[0] for name in missing)})

    def download(self, names: Sequence[str], versions: Mapping[str, str]) -> None:
        """Fetch the packages; those of a version that the archive has no more, from its past."""
        if newest := [name for name in names if name not in versions]:
            self.ask("apt-get", "-qq", "download", *newest)
        for name in names:
            if name in versions:
                self._download(name, versions[name])

    def _download(self, name: str, version: str) -> None:
        try:
            self.ask("apt-get", "-qq", "download", f"{name}={version}")
        except NotToBeHad as error:
            try:
                _from_snapshot(name, version, self._home)
            except NotToBeHad as why:
                raise NotToBeHad(f"{name} {version}: {error}; {why}") from None


def unpack(names: Sequence[str], versions: Mapping[str, str], home: Path) -> Unpacked:
    """Fetch the packages, where named in these versions, and unpack them below the folder `home`.

    NotToBeHad where one cannot be had.
    """
    Apt(home).download(names, versions)
    whole = home / "whole"
    fetched: dict[str, str] = {}
    for file in sorted(home.glob("*.deb")):
        printed = run(["dpkg-deb", "--show", "--showformat", "${Package}\t${Version}", file], home)
        name, version = printed.split("\t")
        if versions.get(name, version) != version:
            raise NotToBeHad(f"{name}: asked for {versions[name]}, and got {version}")
        run(["dpkg-deb", "--extract", file, whole], home)
        fetched[name] = version
    return Unpacked(whole, fetched)


def kept(
    what: str, names: Sequence[str], versions: Mapping[str, str], *, alone: bool = False
) -> Unpacked:
    """Return the packages with what they miss here, or alone, from the cache or fetched now.

    Where no version is named, what the cache has is good for ever, and where those are named that
    it has, too.
    """
    newest = _folder(what, names, {})
    if newest.exists() and _has(newest, versions):
        return _unpacked(newest)
    folder = _folder(what, names, versions)
    if not folder.exists():
        say(f"fetching {', '.join(names)} for the virtual machine, to be unpacked in the cache")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as name:
            home = Path(name)
            made = unpack(names if alone else Apt(home).with_missing(names), versions, home)
            jsonfile.save(made.folder / "versions.json", made.versions)
            if not folder.exists():
                made.folder.rename(folder)
    return _unpacked(folder)


def _folder(what: str, names: Sequence[str], versions: Mapping[str, str]) -> Path:
    asked = {name: versions.get(name, "") for name in names}
    digest = hashlib.sha256(jsonfile.dumps(asked)).hexdigest()[:16]
    return paths.cache() / "virtual" / f"{what}-{digest}"


def _has(folder: Path, versions: Mapping[str, str]) -> bool:
    return versions.items() <= _unpacked(folder).versions.items()


def _unpacked(folder: Path) -> Unpacked:
    return Unpacked(folder, jsonfile.load(folder / "versions.json", dict[str, str]))


def _read(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=_UNREACHABLE) as answer:  # noqa: S310
            data: bytes = answer.read()
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NotToBeHad(f"{address}: {reason}") from None
    return data


def _from_snapshot(name: str, version: str, folder: Path) -> None:
    """Fetch a package of any time (the archive's /mr/binary, in its manual)."""
    base = os.environ.get(SNAPSHOT) or _SNAPSHOT
    quoted = urllib.parse.quote(version, safe="")
    listed = _read(f"{base}/mr/binary/{urllib.parse.quote(name)}/{quoted}/binfiles")
    try:
        files = {file["architecture"]: str(file["hash"]) for file in json.loads(listed)["result"]}
    except (ValueError, KeyError, TypeError):
        raise NotToBeHad(f"{base}: its answer about {name} {version} cannot be read") from None
    architecture = run(["dpkg", "--print-architecture"], folder).strip()
    digest = files.get(architecture) or files.get("all")
    if digest is None:
        raise NotToBeHad(f"{base} has no {name} {version} for {architecture}")
    data = _read(f"{base}/file/{digest}")
    # The archive names files by this digest; those that it is fetched for have better ones.
    if hashlib.sha1(data, usedforsecurity=False).hexdigest() != digest:
        raise NotToBeHad(f"{base}: what came for {name} {version} is damaged")
    (folder / f"{name}_snapshot.deb").write_bytes(data)
