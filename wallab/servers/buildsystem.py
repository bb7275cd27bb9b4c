"""PostgreSQL's two build systems, as the lab uses them.

The servers are configured for one prefix and installed elsewhere: PostgreSQL finds its files
relative to its programs, and the run path is relative too, so that one build tree serves every
variant and an installed tree can be moved.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from wallab.errors import LabError
from wallab.servers.source import Source

PREFIX = "/usr/local/pgsql"
LIBRARIES = ("lz4", "zstd", "readline", "zlib")


class BuildSystem(ABC):
    """How a tree at `source` is configured and built at `build`."""

    name: str

    def __init__(self, major: int) -> None:
        self.major = major

    @property
    @abstractmethod
    def options(self) -> list[str]:
        """The options that are given to it; they are part of what tells builds apart."""

    @abstractmethod
    def configure(self, source: Path, build: Path) -> list[str]:
        """The command that configures; it runs in the build folder."""

    @abstractmethod
    def compile(self, build: Path) -> list[str]:
        """The command that builds everything that gets installed."""

    @abstractmethod
    def install(self, build: Path, target: Path) -> list[list[str]]:
        """The commands that install below the target, which stands for the root folder."""

    @abstractmethod
    def configured(self, build: Path) -> bool:
        """Whether the build folder has been configured to the end."""

    @abstractmethod
    def progress(self, source: Path, build: Path) -> "Progress":
        """What to ask how far a build is, line by line of the output of `compile`."""


Progress = Callable[[str], float | None]
"""Returns the share done (0 to 1) that a line of a build's output tells, if it does."""


class Meson(BuildSystem):
    """Meson and Ninja; PostgreSQL has it since 16."""

    name = "meson"

    @property
    def options(self) -> list[str]:
        """Everything optional is off but for what a reviewer of WAL patches uses."""
        on = [*LIBRARIES, *(["liburing"] if self.major >= 18 else [])]
        return [
            f"--prefix={PREFIX}",
            "--libdir=lib",
            "--buildtype=debugoptimized",
            "--auto-features=disabled",
            "-Dtap_tests=enabled",
            "-Drpath=false",
            "-Dc_link_args=-Wl,-rpath,$ORIGIN/../lib",
            *(f"-D{library}=enabled" for library in on),
        ]

    def configure(self, source: Path, build: Path) -> list[str]:
        return ["meson", "setup", *self.options, str(build), str(source)]

    def compile(self, build: Path) -> list[str]:
        return ["ninja", "-C", str(build)]

    def install(self, build: Path, target: Path) -> list[list[str]]:
        return [
            [
                "meson",
                "install",
                "--no-rebuild",
                "--quiet",
                "-C",
                str(build),
                "--destdir",
                str(target),
            ]
        ]

    def configured(self, build: Path) -> bool:
        return (build / "build.ninja").exists()

    def progress(self, source: Path, build: Path) -> Progress:
        return ninja_share


def ninja_share(line: str) -> float | None:
    """Return the share that Ninja counts: [done/all]."""
    match = re.match(r"\[(\d+)/(\d+)\]", line)
    return int(match[1]) / int(match[2]) if match else None


class Autoconf(BuildSystem):
    """configure and make."""

    name = "autoconf"

    @property
    def options(self) -> list[str]:
        """The same choice as with Meson."""
        options = [
            f"--prefix={PREFIX}",
            # One tree serves every variant, so make must see the headers that a patch touches.
            "--enable-depend",
            "--enable-tap-tests",
            "--enable-debug",
            "--disable-rpath",
            "--with-lz4",
            # make and the shell each take one layer off: \$$ORIGIN becomes $ORIGIN.
            r"LDFLAGS=-Wl,-rpath,\$$ORIGIN/../lib",
        ]
        if self.major >= 15:
            options.append("--with-zstd")
        if self.major >= 16:
            options.append("--without-icu")
        if self.major >= 18:
            options.append("--with-liburing")
        return options

    def configure(self, source: Path, build: Path) -> list[str]:
        return [str(source / "configure"), "--quiet", *self.options]

    def compile(self, build: Path) -> list[str]:
        return ["make", "-C", str(build), f"-j{os.cpu_count() or 1}", "world-bin"]

    def install(self, build: Path, target: Path) -> list[list[str]]:
        return [["make", "-C", str(build), "-s", f"DESTDIR={target}", "install-world-bin"]]

    def configured(self, build: Path) -> bool:
        # configure writes it last.
        return (build / "src/include/stamp-ext-h").exists()

    def progress(self, source: Path, build: Path) -> Progress:
        return MakeProgress(source, build).share


class MakeProgress:
    """How far make is, which counts nothing itself, by the tree's C files.

    A file is done when it is compiled, or when make leaves its folder, having found it up to date.
    Files that no build here compiles, a tenth or so, are never done: the share ends below 1.
    (`make -n` is no help: it announces several times what is then done once or not at all.)
    """

    def __init__(self, source: Path, build: Path) -> None:
        self._source = source.resolve()
        self._build = build.resolve()
        self._folders: dict[Path, set[Path]] = {}
        for file in self._source.rglob("*.c"):
            self._folders.setdefault(file.parent, set()).add(file)
        self._all = sum(map(len, self._folders.values()))
        self._done: set[Path] = set()

    def share(self, line: str) -> float | None:
        """Return the share done (0 to 1) if this line of make's output moved it."""
        if left := re.match(r"make(?:\[\d+\])?: Leaving directory '(.*)'", line):
            folder = Path(left[1])
            if folder.is_relative_to(self._build):
                folder = self._source / folder.relative_to(self._build)
            self._done |= self._folders.get(folder, set())
        elif " -c " in line:
            for named in re.findall(r"\S+/\S+\.c\b", line):
                file = Path(named).resolve()
                if file in self._folders.get(file.parent, set()):
                    self._done.add(file)
        else:
            return None
        return len(self._done) / self._all if self._all else None


def choose(name: str, source: Source) -> BuildSystem:
    """Return the build system of that name; auto is Meson from 16 on."""
    if name == "meson" and source.major < 16:
        raise LabError(
            f"PostgreSQL {source.version} has no Meson build (it came with 16): "
            "use --build-system autoconf"
        )
    if name == "meson" or (name == "auto" and source.major >= 16):
        return Meson(source.major)
    return Autoconf(source.major)
