"""Where the lab keeps things."""

import os
from pathlib import Path

LAB = Path(__file__).resolve().parent.parent
"""The checkout."""

PATCHES = LAB / "patches"
MATRIX = LAB / "matrix.toml"
BUILD = LAB / "build"
RESULTS = Path(os.environ.get("WALLAB_RESULTS") or LAB / "results").absolute()
"""Where runs go; $WALLAB_RESULTS if that is set."""

REFERENCE = LAB / "results" / "reference"
DRIVE = LAB / "drive"
DIRECT_CP = LAB / "direct_cp"
TURNS = LAB / "turns"


def cache() -> Path:
    """The folder for what can be fetched or built again: tarballs, source trees, ccache.

    $WALLAB_CACHE, else wal-lab below $XDG_CACHE_HOME, else below ~/.cache.
    """
    if own := os.environ.get("WALLAB_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "wal-lab"


def runtime() -> Path:
    """The folder for mount points, sockets and the ledger of the running lab."""
    if own := os.environ.get("WALLAB_RUNTIME"):
        return Path(own).absolute()
    if os.geteuid() == 0:
        return Path("/run/wal-lab")
    return Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp")) / f"wal-lab-{os.geteuid()}"  # noqa: S108


def state() -> Path:
    """The folder for what must be undone even after a reboot: settings of real drives, folders.

    $WALLAB_STATE, else /var/lib/wal-lab for root, else below $XDG_STATE_HOME or ~/.local/state.
    """
    if own := os.environ.get("WALLAB_STATE"):
        return Path(own).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/wal-lab")
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "wal-lab"
