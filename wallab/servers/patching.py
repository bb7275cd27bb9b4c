"""Apply patches to a work tree, and take them back.

The tree remembers which files were touched, with their first content, so that a kill in the
middle leaves nothing that the next start does not put right.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.servers import diff
from wallab.servers.patches import Patch


class Touched(msgspec.Struct):
    """What the patches of a tree touched: files that were there, and files that were not."""

    changed: list[str]
    added: list[str]


def touched_files(patch: Patch) -> list[str]:
    """Return the paths that the patch names, without their first component (-p1).

    LabError for a path that leads out of the tree or a file that is no patch.
    """
    try:
        text = patch.file.read_bytes()
    except OSError as error:
        raise LabError(f"patch {patch.origin}: {error.strerror}") from None
    return diff.touched(diff.read(text, str(patch.origin)), str(patch.origin))


class WorkTree:
    """A copy of a source tree whose patches come and go.

    The tree is at `path`; beside it lies what is needed to take the patches back.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._saved = path.with_name(path.name + ".saved")
        self._record = path.with_name(path.name + ".touched.json")

    def restore(self) -> None:
        """Take all patches back."""
        if not self._record.exists():
            return
        touched = jsonfile.load(self._record, Touched)
        for name in touched.added:
            (self.path / name).unlink(missing_ok=True)
        for name in touched.changed:
            saved = self._saved / name
            if saved.exists():
                # patch(1) removes folders that get empty.
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                # The copy gets a new time stamp, so that the build sees the change.
                shutil.copyfile(saved, self.path / name)
                shutil.copymode(saved, self.path / name)
        self._record.unlink()
        shutil.rmtree(self._saved, ignore_errors=True)

    def apply(self, patches: list[Patch], tree_name: str) -> None:
        """Replace what is applied by these patches, in order, without fuzz.

        A file that ends up as it was keeps its time stamp, so that nothing is rebuilt for it.
        A patch that does not apply leaves the tree restored; LabError names file, hunk and tree.
        """
        names = list(dict.fromkeys(name for patch in patches for name in touched_files(patch)))
        before = self._states([*names, *self._touched()])
        self.restore()
        self._save(names)
        self._patch(patches, tree_name)
        for name, (content, stamp) in before.items():
            file = self.path / name
            if file.is_file() and (_only_for_tests(name) or file.read_bytes() == content):
                os.utime(file, ns=(stamp, stamp))

    def _touched(self) -> list[str]:
        """The files that the applied patches touched."""
        if not self._record.exists():
            return []
        touched = jsonfile.load(self._record, Touched)
        return [*touched.changed, *touched.added]

    def _states(self, names: list[str]) -> dict[str, tuple[bytes, int]]:
        """The content and time stamp of those of the files that exist."""
        files = {name: self.path / name for name in names}
        return {
            name: (file.read_bytes(), file.stat().st_mtime_ns)
            for name, file in files.items()
            if file.is_file()
        }

    def _save(self, names: list[str]) -> None:
        """Keep the content of the files that patches are about to touch."""
        touched = Touched([], [])
        for name in names:
            original = self.path / name
            if original.exists():
                saved = self._saved / name
                saved.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(original, saved)
                touched.changed.append(name)
            else:
                touched.added.append(name)
        jsonfile.save(self._record, touched)

    def _patch(self, patches: list[Patch], tree_name: str) -> None:
        """Run patch(1) for each."""
        for patch in patches:
            result = subprocess.run(
                [
                    "patch",
                    "-p1",
                    "--batch",
                    "--forward",
                    "--fuzz=0",
                    "--no-backup-if-mismatch",
                    "--reject-file=-",
                    "-i",
                    str(patch.file.resolve()),
                ],
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=os.environ | {"LC_ALL": "C"},
            )
            if result.returncode:
                applied = [p.name for p in patches[: patches.index(patch)]]
                self.restore()
                raise LabError(_refusal(patch, result.stdout + result.stderr, tree_name, applied))


def _only_for_tests(name: str) -> bool:
    """Whether the file merely lists the tests of a folder, so that no server depends on it.

    Meson configures anew when any of its files is newer, which takes longer than most variants.
    """
    return name.startswith("src/test/") and name.endswith("/meson.build")


def _refusal(patch: Patch, said: str, tree_name: str, applied: list[str]) -> str:
    """Say which hunks of which files did not apply, from the words of patch(1)."""
    places: list[str] = []
    file = "?"
    for line in said.splitlines():
        if found := re.match(r"(?:checking|patching) file '?(.+?)'?$", line):
            file = found[1]
        elif found := re.match(r"Hunk #(\d+) FAILED at (\d+)", line):
            places.append(f"{file}, hunk {found[1]} (line {found[2]})")
        elif "can't find file to patch" in line:
            places.append("a file that the tree does not have")
        elif "Reversed (or previously applied) patch detected" in line:
            places.append(f"{file} (it seems to be applied already)")
        elif "malformed patch" in line:
            places.append(line.removeprefix("patch: **** "))
        elif "No space left on device" in line:
            places.append("no space left on the device")
    on = f" with {' and '.join(applied)} applied" if applied else ""
    where = "; ".join(dict.fromkeys(places)) or said.strip()[-300:]
    return f"patch {patch.name} ({patch.origin}) does not apply to {tree_name}{on}: {where}"
