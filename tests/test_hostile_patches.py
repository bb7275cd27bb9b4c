"""Patches that mean to reach out of the tree: whatever their words, nothing outside is touched."""

import contextlib
import hashlib
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wallab.errors import LabError
from wallab.files import beneath
from wallab.files.beneath import Content
from wallab.servers import patchfile
from wallab.servers.patches import Patch
from wallab.servers.patching import WorkTree

KEPT = "one\ntwo\n"
PATHS = (
    "src/x.c", "src/new.c", "src/deep/new.c", "x.c", "src/link", "src/link/secret",
    "src/link/new", "src/out/secret", "src/out/new", "src/leak", "../outside/secret",
    "src/../../outside/secret", "src/out/../secret", "OUTSIDE/secret", ".git/config",
    "src/.GIT/x", "src/./x.c", "src//x.c",
)  # fmt: skip
"""OUTSIDE stands for the absolute path of a folder beside the tree."""
MODES = ("100644", "100755", "120000", "0120000", "120777", "160000", "040000")

HUNKS: tuple[list[str], ...] = (
    [],
    ["@@ -0,0 +1 @@", "+OUTSIDE", r"\ No newline at end of file"],
    ["@@ -1,2 +1,2 @@", " one", "-two", "+drei"],
    ["@@ -1,2 +0,0 @@", "-one", "-two"],
)


def quoted(path: str, how: str) -> str:
    """The path as a header may have it: plain, in quotes, or all of it in octal."""
    if how == "plain":
        return path
    return f'"{path}"' if how == "quotes" else '"' + "".join(f"\\{ord(c):03o}" for c in path) + '"'


@st.composite
def diffs(draw: st.DrawFn) -> str:
    """A diff of one file, in one of the wordings that git and patch(1) know."""
    old, new = draw(st.sampled_from(PATHS)), draw(st.sampled_from(PATHS))
    if draw(st.booleans()):
        new = old
    how = draw(st.sampled_from(["plain", "quotes", "octal"]))
    prefixes = draw(st.sampled_from([("a/", "b/"), ("", ""), ("x/", "x/")]))
    names = [quoted(prefix + path, how) for prefix, path in zip(prefixes, (old, new), strict=True)]
    mode = draw(st.sampled_from(MODES))
    lines = []
    if draw(st.booleans()):
        lines.append(f"diff --git {names[0]} {names[1]}")
        words = {
            "index": [f"index 0..1 {mode}"],
            "new file": [f"new file mode {mode}"],
            "new": ["old mode 100644", f"new mode {mode}"],
            "deleted": [f"deleted file mode {mode}"],
            "rename": ["similarity index 90%", f"rename from {quoted(old, how)}",
                       f"rename to {quoted(new, how)}"],
            "copy": ["similarity index 90%", f"copy from {quoted(old, how)}",
                     f"copy to {quoted(new, how)}"],
            "none": [],
        }  # fmt: skip
        for word in draw(st.lists(st.sampled_from(sorted(words)), max_size=2)):
            lines += words[word]
    hunk = draw(st.sampled_from(HUNKS))
    if draw(st.booleans()) or hunk:
        absent = draw(st.sampled_from([2, 2, 0, 1]))
        for end, mark in enumerate(("---", "+++")):
            lines.append(f"{mark} {'/dev/null' if end == absent else names[end]}")
    return "\n".join([*lines, *hunk, ""])


def state(folder: Path) -> dict[str, str]:
    """What is in the folder: each path with its kind and content."""
    return {
        str(path.relative_to(folder)): (
            f"link {path.readlink()}"
            if path.is_symlink()
            else "folder"
            if path.is_dir()
            else hashlib.sha256(path.read_bytes()).hexdigest()
        )
        for path in folder.rglob("*")
    }


def files(folder: Path) -> dict[str, str]:
    """Its state without folders, which a patch may leave empty."""
    return {name: kind for name, kind in state(folder).items() if kind != "folder"}


def home(folder: Path) -> tuple[WorkTree, Path]:
    """A tree in which two links lead to the folder beside it, which holds a secret."""
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text(KEPT)
    tree = folder / "tree"
    (tree / "src").mkdir(parents=True)
    for name in ("src/x.c", "x.c"):
        (tree / name).write_text(KEPT)
    (tree / "src" / "out").symlink_to("../../outside")
    (tree / "src" / "leak").symlink_to("../../outside/secret")
    return WorkTree(tree), outside


THROUGH_A_LINK = (
    "--- a/src/link/secret\n+++ b/src/link/secret\n@@ -1,2 +1,2 @@\n one\n-twe\n+drei\n"
    "diff --git a/src/link b/src/link\nindex 0..1 120000\n--- /dev/null\n+++ b/src/link\n"
    "@@ -0,0 +1 @@\n+OUTSIDE\n\\ No newline at end of file\n"
)
"""The first part fails, the link stays, and what takes the patch back went through it."""
FILE_FOR_FOLDER = (
    "--- a/src/x.c\n+++ b/src/link\n@@ -0,0 +1 @@\n+OUTSIDE\n",
    "--- a/src/link/secret\n+++ b/src/link/secret\n@@ -0,0 +1 @@\n+OUTSIDE\n",
)
FOLDER_FOR_FILE = (
    "--- /dev/null\n+++ b/src/link/secret\n@@ -0,0 +1 @@\n+OUTSIDE\n",
    "--- a/x.c\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n",
    "--- a/src/link\n+++ b/src/link\n@@ -0,0 +1 @@\n+OUTSIDE\n",
)


@settings(max_examples=400, deadline=None)
@given(st.lists(diffs(), min_size=1, max_size=3), st.booleans())
@example([THROUGH_A_LINK], False)
@example([*FOLDER_FOR_FILE], False)
@example([*FILE_FOR_FOLDER], False)
@example([THROUGH_A_LINK.partition("diff --git")[2].join(["diff --git", ""])], True)
def test_nothing_outside_is_touched(parts: list[str], apart: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree, outside = home(Path(folder))
        before, beside = files(tree.path), state(outside)
        patches = []
        for number, text in enumerate(parts if apart else ["".join(parts)]):
            file = Path(folder) / f"{number}.patch"
            file.write_text(text.replace("OUTSIDE", str(outside)))
            patches.append(Patch(f"p{number}", file))
        with contextlib.suppress(LabError):
            tree.apply(patches, "the tree")
        assert state(outside) == beside
        links = {name for name, kind in files(tree.path).items() if kind.startswith("link")}
        assert links == {"src/out", "src/leak"}
        tree.restore()
        assert files(tree.path) == before
        assert state(outside) == beside


@settings(max_examples=200, deadline=None)
@given(st.lists(diffs(), min_size=1, max_size=2))
def test_what_is_read_stays_in_the_tree(parts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.patch"
        file.write_text("".join(parts))
        with contextlib.suppress(LabError):
            for patch in patchfile.read(file):
                assert b"120000" not in patch.text
                assert b".." not in patch.text.replace(b"0..1", b"")


@pytest.mark.parametrize("name", ["src/out/secret", "src/out/new", "src/leak"])
def test_link_of_the_tree_is_not_followed(tmp_path: Path, name: str) -> None:
    tree, outside = home(tmp_path)
    file = tmp_path / "x.patch"
    file.write_text(f"--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,2 @@\n one\n-two\n+drei\n")
    with pytest.raises(LabError, match=f"x.patch: {name} is, or lies behind, a symbolic link"):
        tree.apply([Patch("x", file)], "the tree")
    assert (outside / "secret").read_text() == KEPT


@pytest.mark.parametrize("adding", [True, False])
def test_folder_that_a_build_replaced_by_a_link(tmp_path: Path, adding: bool) -> None:
    """Taking back what was patched below it would go through."""
    tree, outside = home(tmp_path)
    file = tmp_path / "x.patch"
    (tree.path / "src" / "deep").mkdir()
    name = "src/deep/secret"
    if adding:
        file.write_text(f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+one\n")
    else:
        (tree.path / name).write_text(KEPT)
        file.write_text(f"--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,2 @@\n one\n-two\n+drei\n")
    tree.apply([Patch("x", file)], "the tree")
    (tree.path / "src" / "deep").rename(tree.path / "src" / "aside")
    (tree.path / "src" / "deep").symlink_to(outside)
    with pytest.raises(LabError, match="cannot be put back"):
        tree.restore()
    assert (outside / "secret").read_text() == KEPT


def test_repository_of_a_stranger_is_not_looked_at(tmp_path: Path) -> None:
    """Neither above the tree nor in it: its configuration would name programs."""
    tree, _ = home(tmp_path)
    marker = tmp_path / "marker"
    for folder in (tree.path, tree.path.parent):
        (folder / ".git" / "objects").mkdir(parents=True)
        (folder / ".git" / "refs").mkdir()
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / ".git" / "config").write_text(
            f'[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch {marker}; false"\n'
            f'[filter "x"]\n\tclean = "touch {marker}; cat"\n\tsmudge = "touch {marker}; cat"\n'
        )
    (tree.path / ".gitattributes").write_text("* filter=x\n")
    file = tmp_path / "x.patch"
    file.write_text("--- a/src/x.c\n+++ b/src/x.c\n@@ -1,2 +1,2 @@\n one\n-two\n+drei\n")
    tree.apply([Patch("x", file)], "the tree")
    assert (tree.path / "src" / "x.c").read_text() == "one\ndrei\n"
    assert not marker.exists()


def test_damaged_record_says_what_to_remove(tmp_path: Path) -> None:
    tree, _ = home(tmp_path)
    (tmp_path / "tree.touched.json").write_text('{"changed": 1}')
    with pytest.raises(LabError, match=rf"tree\.touched\.json: .*changed.*remove {tmp_path}"):
        tree.restore()


def test_names_that_lead_out_are_never_opened(tmp_path: Path) -> None:
    content = Content(b"x", 0o640, 0)
    beneath.write(tmp_path, "a/b", content)
    assert beneath.read(tmp_path, "a/b") == msgspec.structs.replace(
        content, stamp=(tmp_path / "a" / "b").stat().st_mtime_ns
    )
    for name in ("../x", "a/../x", "/x", "a//b", "a/b/c", "a\0b"):
        with pytest.raises(OSError, match=r"Invalid argument|No such file"):
            beneath.write(tmp_path, name, content)
