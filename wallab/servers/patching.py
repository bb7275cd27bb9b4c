"""Apply patches to a work tree, and take them back.

The tree remembers which files were touched, with their first content, so that a kill in the
middle leaves nothing that the next start does not put right.
"""

import contextlib
import re
import shutil
from pathlib import Path

import msgspec

from wallab.errors import LabError
from wallab.files import beneath, jsonfile
from wallab.files.beneath import Content
from wallab.servers import diff, git
from wallab.servers.diff import FileDiff
from wallab.servers.patches import Patch


class Touched(msgspec.Struct):
    """What the patches of a tree touched: files that were there, and files that were not."""

    changed: list[str]
    added: list[str]


def _files(patch: Patch) -> list[FileDiff]:
    try:
        text = patch.file.read_bytes()
    except OSError as error:
        raise LabError(f"patch {patch.origin}: {error.strerror}") from None
    return diff.read(text, str(patch.origin))


def touched_files(patch: Patch) -> list[str]:
    """Return the paths that the patch names, without their first component (-p1).

    LabError for a path that leads out of the tree or a file that is no patch.
    """
    pairs = diff.touched(_files(patch), str(patch.origin))
    return list(dict.fromkeys(name for pair in pairs for name in pair))


class WorkTree:
    """A copy of a source tree whose patches come and go.

    The tree is at `path`; beside it lies what is needed to take the patches back. No link that is
    in the tree is followed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._saved = path.with_name(path.name + ".saved")
        self._record = path.with_name(path.name + ".touched.json")

    def restore(self) -> None:
        """Take all patches back; LabError where something else was put in a file's place."""
        if not self._record.exists():
            return
        touched = self._touched()
        try:
            # What is in a folder that a patch made goes before the folder.
            for name in sorted(touched.added, reverse=True):
                beneath.remove(self.path, name)
            for name in touched.changed:
                if (saved := beneath.read(self._saved, name)) is not None:
                    # It gets a new time stamp, so that the build sees the change.
                    beneath.write(self.path, name, saved)
        except OSError as error:
            raise LabError(
                f"{self._record}: {error.filename}, which a patch touched, cannot be put back "
                f"({error.strerror}); remove {self.path.parent}, which is made anew"
            ) from None
        self._record.unlink()
        shutil.rmtree(self._saved, ignore_errors=True)

    def apply(self, patches: list[Patch], tree_name: str) -> list[str]:
        """Replace what is applied by these patches, in order, without fuzz.

        Documentation that does not apply is left out, as no server depends on it; returned is what
        there is to say about that.

        A file that ends up as it was keeps its time stamp, so that nothing is rebuilt for it.
        Patches that do not apply leave the tree restored; LabError names each, with its files,
        hunks and the tree.
        """
        before: dict[str, Content | None] = {}
        for patch in patches:
            for name in touched_files(patch):
                before[name] = self._content(name, f"patch {patch.origin}")
        names = list(before)
        applied = self._touched()
        for name in (*applied.changed, *applied.added):
            before[name] = self._content(name, str(self.path))
        self.restore()
        self._save(names)
        left_out = self._patch(patches, tree_name)
        for name, content in before.items():
            # A file may have become a folder.
            with contextlib.suppress(OSError):
                now = beneath.read(self.path, name)
                if content and now and (_only_for_tests(name) or now.bytes == content.bytes):
                    beneath.set_stamp(self.path, name, content.stamp)
        return left_out

    def _touched(self) -> Touched:
        """What the applied patches touched."""
        if not self._record.exists():
            return Touched([], [])
        return jsonfile.read(
            self._record, Touched, f"remove {self.path.parent}, which is made anew"
        )

    def _content(self, name: str, where: str) -> Content | None:
        """The file, where there is one; LabError for what no patch may touch."""
        try:
            return beneath.read(self.path, name)
        except OSError as error:
            raise LabError(
                f"{where}: {name} is, or lies behind, a symbolic link or what is no plain file "
                f"({error.strerror}), which no patch needs"
            ) from None

    def _save(self, names: list[str]) -> None:
        """Keep the content of the files that patches are about to touch."""
        touched = Touched([], [])
        self._saved.mkdir(exist_ok=True)
        for name in names:
            content = self._content(name, str(self.path))
            if content is not None:
                beneath.write(self._saved, name, content)
                touched.changed.append(name)
            else:
                touched.added.append(name)
        jsonfile.save(self._record, touched)

    def _patch(self, patches: list[Patch], tree_name: str) -> list[str]:
        """Run git apply for each; restore the tree and name all that fail, if any does.

        Returned is which documentation was left out.
        """
        failures: list[str] = []
        left_out: list[str] = []
        for number, patch in enumerate(patches):
            files = _files(patch)
            text = diff.with_prefix(files)
            result = git.apply(text, tree=self.path)
            if result.returncode and self._applies_without_documentation(patch, files):
                places = _places(result.stderr.decode(errors="replace"), files, patch)
                left_out.append(
                    f"documentation of patch {patch.name} ({patch.origin}) does not apply to "
                    f"{tree_name} and is left out: {places}"
                )
            elif result.returncode:
                places = _places(result.stderr.decode(errors="replace"), files, patch)
                if not git.apply(text, "--reverse", "--check", tree=self.path).returncode:
                    places += " (it seems to be applied already)"
                before = " and ".join(earlier.name for earlier in patches[:number])
                failures.append(
                    f"patch {patch.name} ({patch.origin}) does not apply to {tree_name}"
                    f"{f' with {before} applied' if before else ''}: {places}"
                )
                # So that a patch on top of it is judged by its own hunks, as far as can be.
                for file in files:
                    git.apply(diff.with_prefix([file]), tree=self.path)
        if failures:
            self.restore()
            raise LabError("\n".join(failures))
        return left_out

    def _applies_without_documentation(self, patch: Patch, files: list[FileDiff]) -> bool:
        """Apply all but files in doc/, and those of them that do apply; False if code does not."""
        documents: list[FileDiff] = []
        code: list[FileDiff] = []
        for names, file in zip(diff.touched(files, str(patch.origin)), files, strict=True):
            in_doc = all(name.startswith("doc/") for name in names)
            (documents if in_doc else code).append(file)
        if not documents or not code:
            return False
        if git.apply(diff.with_prefix(code), tree=self.path).returncode:
            return False
        for file in documents:
            git.apply(diff.with_prefix([file]), tree=self.path)
        return True


def _only_for_tests(name: str) -> bool:
    """Whether the file merely lists the tests of a folder, so that no server depends on it.

    Meson configures anew when any of its files is newer, which takes longer than most variants.
    """
    return name.startswith("src/test/") and name.endswith("/meson.build")


def _places(errors: str, files: list[FileDiff], patch: Patch) -> str:
    """Say which hunks of which files did not apply, from the words of git."""
    hunks = [
        (name, number, line)
        for names, file in zip(diff.touched(files, str(patch.origin)), files, strict=True)
        for name in names
        for number, line in enumerate(file.hunks, 1)
    ]
    places: list[str] = []
    for error in errors.splitlines():
        if failed := re.match(r"error: patch failed: (.+):(\d+)$", error):
            places += [
                f"{name}, hunk {number} (line {line})"
                for name, number, line in hunks
                if (name, line) == (failed[1], int(failed[2]))
            ]
        elif missing := re.match(r"error: (.+): No such file or directory$", error):
            places.append(f"{missing[1]}, which the tree does not have")
        elif known := re.match(r"error: (.+): already exists in working directory$", error):
            places.append(f"{known[1]}, which the tree has already")
        elif "No space left on device" in error:
            places.append("no space left on the device")
    return "; ".join(dict.fromkeys(places)) or errors.strip()[-300:]
