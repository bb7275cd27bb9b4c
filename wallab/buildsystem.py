"""PostgreSQL's two build systems, as the lab uses them.

The servers are configured for one prefix and installed elsewhere: PostgreSQL finds its files
relative to its programs, and the run path is relative too, so that one build tree serves every
variant and an installed tree can be moved.
"""

import os
import re
from abc import ABC, abstractmethod
from pathlib import Path

from wallab.errors import LabError
from wallab.source import Source

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

    @staticmethod
    def share_done(line: str) -> float | None:
        """Return the share done (0 to 1) that a line of the build's output tells, if it does."""
        found = re.match(r"\[(\d+)/(\d+)\]", line)
        return int(found[1]) / int(found[2]) if found else None


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
