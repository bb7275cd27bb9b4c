"""Folders that every user of this machine can reach."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from wallab.machine import scratch


@contextlib.contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """Make one, which goes when the block ends."""
    path = Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        scratch.remove(path)
