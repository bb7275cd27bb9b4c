"""The guest's Python: Debian's packages, the same whichever Python runs the lab."""

import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import msgspec

from wallab.progress import say
from wallab.virtual import packages
from wallab.virtual.packages import NotToBeHad

NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The version of the one that runs the lab: the compiled packages beside it take no other."""

_PACKAGES = (
    f"{NAME}-minimal", f"lib{NAME}-minimal", f"lib{NAME}-stdlib",
    "libexpat1", "libffi8", "libssl3", "zlib1g",
)  # fmt: skip
"""With what they load, of what the guest has of them, by their names in Debian 12."""


class Python(msgspec.Struct, frozen=True):
    """An interpreter and its standard library."""

    program: Path
    library: Path
    """The folder."""
    versions: dict[str, str]
    """Of its packages; empty for the one that runs the lab."""
    environment: dict[str, str]
    """What it takes to find the libraries that come with it."""


def find(versions: Mapping[str, str] | None = None) -> Python:
    """Return Debian's, unpacked in the cache, of these packages if they are named.

    Where Debian has none of that version, that is the one that runs the lab.
    """
    wanted = {name: version for name, version in (versions or {}).items() if name in _PACKAGES}
    try:
        debians = packages.kept("python", _PACKAGES, wanted, alone=True)
    except NotToBeHad as error:
        say(f"the guest gets this machine's Python, for Debian's is not to be had: {error}")
        return own()
    program = debians.folder / "usr" / "bin" / NAME
    library = debians.folder / "usr" / "lib" / NAME
    return Python(program, library, debians.versions, debians.environment)


def own() -> Python:
    """Return the one that runs the lab."""
    return Python(Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib")), {}, {})
