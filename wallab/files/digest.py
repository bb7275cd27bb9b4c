"""What tells one file's content from another's."""

import hashlib
from pathlib import Path


def sha256(file: Path) -> str:
    """Return the file's SHA-256 in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
