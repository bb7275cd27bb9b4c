"""What it costs to build all variants of a source: from nothing, again, and after an edit."""

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks import installed
from wallab.errors import LabError
from wallab.servers.builder import Server
from wallab.servers.patches import Patch

Variants = dict[str, list[Patch]]
EDITED = "direct-io"
"""The patch that is edited; two of the lab's variants have it."""
_CODE = "src/backend/access/transam/xlog.c"


class Maker(Protocol):
    """What builds; a `builder.Builder`."""

    folder: Path
    """Where it installs."""

    def build(self, variants: Variants) -> list[Server]:
        """Build what is not up to date."""
        ...


class Step(msgspec.Struct, frozen=True):
    """Builds of some variants."""

    name: str
    seconds: float
    built: tuple[str, ...]
    """The variants that were built; the others were up to date."""


class BuildCost(msgspec.Struct, frozen=True):
    """What was measured; the first step is one cold build."""

    steps: tuple[Step, ...]
    differing: dict[str, list[str]] | None = None
    """Variant -> what two cold builds made different; None if there was but one."""

    @property
    def all_cold(self) -> float:
        """Seconds of all variants from nothing."""
        return self.steps[0].seconds + self.steps[1].seconds


def edited(patch: bytes) -> bytes:
    """Return the patch with a change in the code that it adds to xlog.c: one more semicolon.

    Its compiled code stays the same, but no compiler cache has seen it.
    """
    lines = patch.split(b"\n")
    inside = False
    for number, line in enumerate(lines):
        if line.startswith(b"+++ "):
            inside = line.endswith(f"/{_CODE}".encode())
        elif inside and re.match(rb"\+.*\w.*;$", line):
            lines[number] = line + b";"
            return b"\n".join(lines)
    raise LabError(f"the patch adds no statement to {_CODE}")


def measure(
    maker: Maker, variants: Variants, home: Path, forget: Callable[[], None] | None = None
) -> BuildCost:
    """Build the variants, stock first; the maker has built nothing yet.

    `home` is a folder for copies. With `forget`, which makes the maker's caches as they were
    before, all is built a second time in the same place, and compared.
    """
    steps: list[Step] = []

    def build(name: str, wanted: Variants) -> None:
        begun = time.monotonic()
        servers = maker.build(wanted)
        seconds = time.monotonic() - begun
        built = tuple(server.build.variant for server in servers if server.fresh)
        steps.append(Step(name, seconds, built))

    build("one cold stock build", {"stock": variants["stock"]})
    build("the other variants", variants)
    build("nothing changed", variants)
    first = home / "first"
    if forget:
        shutil.copytree(maker.folder, first, symlinks=True)
    changed = home / f"{EDITED}.patch"
    (original,) = {patch for patches in variants.values() for patch in patches
                   if patch.name == EDITED}  # fmt: skip
    changed.write_bytes(edited(original.file.read_bytes()))
    new = msgspec.structs.replace(original, file=changed)
    build(
        f"{EDITED}.patch edited",
        {
            name: [new if patch == original else patch for patch in patches]
            for name, patches in variants.items()
        },
    )
    if not forget:
        return BuildCost(tuple(steps))
    shutil.rmtree(maker.folder)
    forget()
    build("all once more, cold", variants)
    return BuildCost(
        tuple(steps),
        {name: installed.unexpected(first / name, maker.folder / name) for name in variants},
    )


def text(cost: BuildCost) -> str:
    """Write the cost for people: seconds, share of one cold stock build, and what was built."""
    stock = cost.steps[0].seconds
    rows = [(step.name, step.seconds, ", ".join(step.built) or "–") for step in cost.steps]
    rows.append(("all variants, cold", cost.all_cold, ""))
    lines = [f"{'':24} {'seconds':>8} {'÷ stock':>8}  built"]
    lines += [
        f"{name:24} {seconds:8.1f} {seconds / stock:8.3f}  {built}".rstrip()
        for name, seconds, built in rows
    ]
    if cost.differing is not None:
        fields = ", ".join(sorted(installed.VARYING))
        for name, paths in cost.differing.items():
            if paths:
                lines.append(f"{name}: two cold builds DIFFER in {', '.join(paths)}")
            else:
                lines.append(f"{name}: two cold builds differ in nothing but build.json: {fields}")
    return "\n".join(lines)
