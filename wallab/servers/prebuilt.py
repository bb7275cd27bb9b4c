"""Servers that came with a container image, which has neither their source nor a compiler."""

import os
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import MachineError
from wallab.files import jsonfile

_BUILDER_HINT = (
    "this image has no compiler; build the one that has with “docker build -t wal-lab:builder "
    "--target builder .”, and use that"
)


class Origin(msgspec.Struct, frozen=True):
    """The part of a build.json that tells where a server came from."""

    version: str
    source: str
    source_kind: str
    compiler: str


def default_source() -> str | None:
    """The source that the image was made of, to be used where none is named."""
    return os.environ.get("WALLAB_SOURCE") or None


def origin(name: str | None = None) -> Origin:
    """Return where the image's servers came from.

    MachineError if that is not the named source: a major version, or what the image was made of.
    """
    origins = [
        jsonfile.read(file, Origin, "make the image again")
        for file in sorted(Path(paths.BUILD).glob("*/*/build.json"))
    ]
    for origin in origins:
        if name in {None, default_source()} or origin.version.partition(".")[0] == name:
            return origin
    have = ", ".join(sorted({origin.version for origin in origins})) or "no server"
    raise MachineError(f"source {name}: this image has {have}, and {_BUILDER_HINT}")


def refuse_to_test() -> MachineError:
    """Return the error of the tests, which compile."""
    return MachineError(f"test: {_BUILDER_HINT}")


def refuse_to_build(variant: str) -> MachineError:
    """Return the error of a variant that did not come with the image."""
    have = sorted({file.parent.name for file in paths.BUILD.glob("*/*/build.json")})
    return MachineError(f"{variant}: this image has {', '.join(have)}; {_BUILDER_HINT}")
