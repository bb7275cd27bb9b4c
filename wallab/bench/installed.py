"""The servers of a bed: installed trees where the user whom they run as can reach them."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wallab.machine import mounts
from wallab.machine.confinement import Confinement
from wallab.machine.ledger import Ledger
from wallab.servers import cluster


@dataclass(frozen=True)
class Installed:
    """Installed servers by the names that conditions have for them."""

    paths: Mapping[str, Path]
    methods: Mapping[str, tuple[str, ...]]
    """Name -> its values of wal_sync_method."""
    confinement: Confinement
    """How they are run."""


def plain(name: str) -> str:
    """Return the name as that of a file."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", name)


def shown(
    installed: Mapping[str, Path],
    ledger: Ledger,
    undo: contextlib.ExitStack,
    confinement: Confinement,
    *,
    private: bool,
) -> Installed:
    """Show the trees, read-only, in the ledger's folder, until `undo`; ask for their methods.

    A tree may lie where other users cannot pass. Without a mount namespace of the lab's own
    (`private`), they are used where they are.
    """
    paths = dict(installed)
    if private:
        for name, tree in installed.items():
            paths[name] = target = ledger.folder / "server" / plain(name)
            target.mkdir(parents=True, exist_ok=True)
            mounts.bind(tree, target)
            undo.callback(mounts.unmount, target)
    methods = {name: cluster.methods(tree, confinement) for name, tree in paths.items()}
    return Installed(paths, methods, confinement)
