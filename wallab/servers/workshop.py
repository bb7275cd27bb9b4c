"""Where a variant is built: a folder of the build's user, in a sandbox, with a compiler cache.

What the lab itself has, releases with its own patches, goes through one tree that stays. A
stranger's patch gets a copy of it that goes with the build, since it could leave anything there for
the next; so with the compiler cache: it reads the lab's, and writes one that is for it alone.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wallab import paths
from wallab.machine import sandbox, scratch
from wallab.machine.sandbox import Sandbox

GIVEN = Path("/given")
"""Inside: the tree that stays, to be copied."""

_LARGEST_CACHE = 2 << 30
"""Bytes; a stranger's cache that is larger is not kept. A whole build takes 0.1 GB."""


class Workshop:
    """A folder with a source tree (src), a build folder (build) and what it installs (staging)."""

    def __init__(
        self, home: Path, box: Sandbox, variables: dict[str, str], owner: int, *, copied: bool
    ) -> None:
        self.kept = home / "tree"
        """The folder of the tree that stays."""
        self.folder = box.folder
        self.inside = box.inside
        """Where the folder is in the sandbox."""
        self.box = box
        self.variables = variables
        """Of the compiler cache."""
        self.owner = owner
        """The user, by number."""
        self.copied = copied
        """Whether the tree that stays is to be had at GIVEN, and not yet here."""


@contextmanager
def opened(
    home: Path, *, guest: bool, lasting: bool, store: Path, readable: Sequence[Path]
) -> Iterator[Workshop]:
    """Yield a workshop below the home, which is locked; a guest's tree may be one that lasts.

    `store` is where a guest's compiler cache is while it does not work. `readable` is what else is
    to be seen inside. MachineError where there is no sandbox.
    """
    kept = home / "tree"
    folder = kept if lasting else home / "guest"
    if not lasting:
        scratch.remove(folder)
    _make(folder, guest=guest)
    shared = paths.cache() / "ccache"
    _make(shared, guest=False)
    places = {path: path for path in readable}
    if guest:
        places |= {shared: shared}
        _fetch(store, folder / "ccache")
    copied = not lasting and (kept / "src").is_dir() and sandbox.kind(guest=guest) == "bwrap"
    if copied:
        places[GIVEN] = kept
    try:
        with Sandbox(
            folder,
            guest=guest,
            shown_at=kept,
            writable=[] if guest else [shared],
            readable=places,
        ) as box:
            own = box.inside / "ccache" if guest else shared
            variables = _variables(own, shared, guest)
            yield Workshop(home, box, variables, sandbox.owner(guest=guest), copied=copied)
    finally:
        if guest:
            _put_away(folder / "ccache", store)
        if not lasting:
            scratch.remove(folder)


def _variables(own: Path, shared: Path, guest: bool) -> dict[str, str]:
    """Return ccache's settings: what is found in the lab's own cache is shared, read-only.

    What ccache keeps for itself cannot be read by two, hence the storage beside it.
    """
    known = {"CCACHE_DIR": str(own), "CCACHE_NOHASHDIR": "1", "CCACHE_UMASK": "022"}
    storage = f"file:{shared / 'shared'}"
    if not set(storage) & set(" |%"):  # which ccache would take for its own
        known["CCACHE_REMOTE_STORAGE"] = f"{storage}|read-only" if guest else storage
        known["CCACHE_RESHARE"] = "1"
    return known


def _make(folder: Path, *, guest: bool) -> None:
    """Make the folder, if there is none, and give it to the user who builds."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    user = sandbox.user(guest=guest)
    if user and folder.lstat().st_uid != sandbox.owner(guest=guest):
        # What is there was made by root: an earlier lab's cache.
        command = ["chown", "-R", "--no-dereference", f"{user}:", "--", str(folder)]
        subprocess.run(command, capture_output=True, check=True)


def _fetch(store: Path, place: Path) -> None:
    """Put a guest's compiler cache in its place, where none was left by a kill."""
    if os.path.lexists(store) and not os.path.lexists(place):
        store.rename(place)


def _put_away(place: Path, store: Path) -> None:
    """Put a guest's compiler cache where no other guest can reach it."""
    if not os.path.lexists(place):
        return
    store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch.remove(store)
    if sandbox.used(place) <= _LARGEST_CACHE:
        place.rename(store)
