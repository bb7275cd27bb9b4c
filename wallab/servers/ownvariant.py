"""Add and remove variants of a reviewer's own: patches on a variant, below build/variants.

The lab has copies of the patches, so that their files may change or vanish.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.files.timestamp import utc
from wallab.record.ownvariant import NAME, RECORD, OwnPatch, OwnVariant, every, find, folder
from wallab.servers import patchfile


def check_name(name: str, on: str, taken: Iterable[str]) -> None:
    """LabError unless an own variant may have the name and go on that variant."""
    if name in taken or name == "all":
        raise LabError(f"--name {name}: the lab has that name itself; choose another")
    if not NAME.fullmatch(name):
        raise LabError(
            f"--name {name}: expected at most 40 of a-z, 0-9, “.”, “_” and “-”, of which the "
            "first is a letter or digit"
        )
    if on not in (*taken, *every()):
        raise LabError(f"--on {on}: there is no such variant")
    below: str | None = on
    while below is not None:
        if below == name:
            raise LabError(f"--on {on}: that is {name} itself, or stands on it")
        own = find(below)
        below = own.on if own else None


@contextmanager
def added(
    name: str, on: str, files: Iterable[Path], source: str = ""
) -> Iterator[tuple[OwnVariant, Path]]:
    """Read the patches and yield the variant with the folder of its patches, not kept yet.

    `source` is what it is built from where no other is named. It is kept, instead of an earlier one
    of that name, when the block ends well, and else gone.
    """
    target = folder(name)
    fresh = target.with_name(f".{name}.new")
    patches: list[OwnPatch] = []
    given = [(file.absolute(), patch) for file in files for patch in patchfile.read(file)]
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for number, (file, patch) in enumerate(given, 1):
            copy = fresh / f"{number:04}.patch"
            copy.write_bytes(patch.text)
            digest = hashlib.sha256(patch.text).hexdigest()
            patches.append(
                OwnPatch(patch.name, copy.name, digest, patch.subject, patch.author, file)
            )
        variant = OwnVariant(name, on, tuple(patches), utc(), source)
        yield variant, fresh
        jsonfile.save(fresh / RECORD, variant)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    except OSError as error:
        raise MachineError(f"{target}: {error.strerror}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def remove(name: str) -> list[Path]:
    """Remove the variant with its servers and checks; return what was removed.

    LabError for one that is not there, and for one that others stand on.
    """
    if not NAME.fullmatch(name) or not folder(name).is_dir():
        raise LabError(
            f"--remove {name}: no such variant of your own; there are "
            f"{', '.join(every()) or 'none'}"
        )
    if others := [other.name for other in every().values() if other.on == name]:
        raise LabError(f"--remove {name}: {', '.join(others)} stand on it; remove them first")
    servers = [file.parent for file in paths.BUILD.glob(f"*/{name}/build.json")]
    checks = (paths.BUILD / "checks").glob(f"*/{name}")
    # The record comes last, so that what is left after a kill can be removed again.
    gone = [path for path in (*servers, *checks, folder(name)) if path.is_dir()]
    for path in gone:
        shutil.rmtree(path)
    return gone
