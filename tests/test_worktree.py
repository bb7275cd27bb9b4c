"""Patches on a small tree: applied, taken back, and what is said where that fails."""

import difflib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.servers import git
from wallab.servers.patches import Patch
from wallab.servers.patching import Touched, WorkTree, touched_files

LISTED = "src/test/x/meson.build"
FILES = {
    "src/a.c": "one\ntwo\nthree\n",
    "src/b.c": "".join(f"line {number}\n" for number in range(1, 41)),
    LISTED: "tests\nof a\n",
    "src/meson.build": "tests\nof a\n",
    "src/test/x.c": "one\ntwo\nthree\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """The tree, all of it an hour old."""
    for name, text in FILES.items():
        file = tmp_path / "tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (1000, 1000))
    return WorkTree(tmp_path / "tree")


def changing(name: str, old: str, new: str, text: str | None = None) -> str:
    """A diff of one line of the file, of that text if it has another, with a line around it."""
    before = (FILES[name] if text is None else text).splitlines(keepends=True)
    after = [f"{new}\n" if line == f"{old}\n" else line for line in before]
    assert before != after
    return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=1))


def adding(name: str, text: str) -> str:
    """A diff of a new file."""
    return f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{text}\n"


def patch(tree: WorkTree, name: str, text: str) -> Patch:
    """A patch of that name."""
    file = tree.path.with_name(f"{name}.patch")
    file.write_text(text)
    return Patch(name, file)


def content(tree: WorkTree) -> dict[str, str]:
    """The tree's files."""
    return {
        str(file.relative_to(tree.path)): file.read_text()
        for file in tree.path.rglob("*")
        if file.is_file()
    }


def stamp(tree: WorkTree, name: str) -> float:
    """When the file was changed."""
    return (tree.path / name).stat().st_mtime


def beside(tree: WorkTree) -> set[str]:
    """What is beside the tree, but for patches."""
    return {path.name for path in tree.path.parent.iterdir() if path.suffix != ".patch"}


def test_patches_come_and_go(tree: WorkTree) -> None:
    first = patch(tree, "first", changing("src/a.c", "two", "zwei"))
    second = patch(tree, "second", adding("src/new/deep/n.c", "n") + adding("src/m.c", "m"))
    tree.apply([first, second], "the tree")
    assert content(tree) == FILES | {
        "src/a.c": "one\nzwei\nthree\n", "src/new/deep/n.c": "n\n", "src/m.c": "m\n"
    }  # fmt: skip
    assert beside(tree) == {"tree", "tree.saved", "tree.touched.json"}
    record = jsonfile.load(tree.path.with_name("tree.touched.json"), Touched)
    assert record == Touched(["src/a.c"], ["src/new/deep/n.c", "src/m.c"])
    # Another process may take them back, after a kill.
    WorkTree(tree.path).restore()
    assert content(tree) == FILES
    assert beside(tree) == {"tree"}
    assert stamp(tree, "src/a.c") > 1000
    tree.restore()
    assert content(tree) == FILES


def test_what_was_added_in_an_added_folder_goes_before_it(tree: WorkTree) -> None:
    """A patch may make a file where another one made a folder."""
    tree.apply([patch(tree, "p", adding("src/x", "a file"))], "the tree")
    jsonfile.save(tree.path.with_name("tree.touched.json"), Touched([], ["src/x", "src/x/y"]))
    (tree.path / "src" / "x").unlink()
    (tree.path / "src" / "x").mkdir()
    (tree.path / "src" / "x" / "y").touch()
    tree.restore()
    assert content(tree) == FILES
    assert not (tree.path / "src" / "x").exists()


def test_saved_files_that_cannot_go_hold_nothing_up(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def rmtree(path: Path, ignore_errors: bool = False) -> None:
        asked.append((path, ignore_errors))

    monkeypatch.setattr("shutil.rmtree", rmtree)
    tree.apply([patch(tree, "p", changing("src/a.c", "one", "eins"))], "the tree")
    tree.restore()
    assert asked == [(tree.path.with_name("tree.saved"), True)]
    # And what is left there is in nobody's way.
    tree.apply([patch(tree, "q", changing("src/a.c", "one", "uno"))], "the tree")
    assert (tree.path / "src" / "a.c").read_text() == "uno\ntwo\nthree\n"
    tree.restore()
    assert content(tree) == FILES


def test_a_file_that_ends_up_as_it_was_keeps_its_stamp(tree: WorkTree) -> None:
    """So that nothing is built again for it."""
    ours = patch(tree, "ours", changing("src/a.c", "one", "eins"))
    tree.apply([ours], "the tree")
    os.utime(tree.path / "src/a.c", (2000, 2000))
    more = patch(tree, "more", changing("src/b.c", "line 1", "Zeile 1"))
    tree.apply([ours, more], "the tree")
    assert stamp(tree, "src/a.c") == 2000
    assert stamp(tree, "src/b.c") > 10_000
    # Taken back by the next patches, it is another file.
    os.utime(tree.path / "src/b.c", (3000, 3000))
    tree.apply([more], "the tree")
    assert stamp(tree, "src/a.c") > 10_000
    assert stamp(tree, "src/b.c") == 3000
    tree.apply([], "the tree")
    assert content(tree) == FILES


@pytest.mark.parametrize(
    ("name", "kept"), [(LISTED, True), ("src/meson.build", False), ("src/test/x.c", False)]
)
def test_lists_of_tests_are_never_new(tree: WorkTree, name: str, kept: bool) -> None:
    first = FILES[name].split("\n", maxsplit=1)[0]
    tree.apply([patch(tree, "p", changing(name, first, "more"))], "the tree")
    assert (tree.path / name).read_text().startswith("more\n")
    assert (stamp(tree, name) == 1000) is kept


def test_patch_that_makes_a_folder_of_a_file(tree: WorkTree) -> None:
    gone = "--- a/src/a.c\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n"
    patches = [patch(tree, "p", gone), patch(tree, "q", adding("src/a.c/x", "x"))]
    tree.apply(patches, "the tree")
    assert (tree.path / "src" / "a.c" / "x").is_file()
    tree.restore()
    assert content(tree) == FILES


def refusal(tree: WorkTree, *patches: Patch) -> str:
    """What is said of patches that do not apply; the tree is as it was then."""
    with pytest.raises(LabError) as refused:
        tree.apply([*patches], "PostgreSQL 18")
    assert content(tree) == FILES
    assert beside(tree) == {"tree"}
    return str(refused.value)


def test_hunks_that_do_not_apply(tree: WorkTree) -> None:
    wrong = patch(
        tree, "p",
        changing("src/a.c", "one", "eins")
        + changing("src/b.c", "line 2", "x")
        + "@@ -20,3 +20,3 @@\n line 20\n-line 22\n+y\n line 23\n",
    )  # fmt: skip
    assert refusal(tree, wrong) == (
        f"patch p ({wrong.file}) does not apply to PostgreSQL 18: src/b.c, hunk 2 (line 20)"
    )
    good = patch(tree, "good", changing("src/a.c", "one", "eins"))
    fine = patch(tree, "fine", changing("src/a.c", "three", "drei"))
    assert refusal(tree, good, fine, wrong).startswith(
        f"patch p ({wrong.file}) does not apply to PostgreSQL 18 with good and fine applied: "
        "src/a.c, hunk 1 (line 1)"
    )


def test_files_that_are_or_are_not_there(tree: WorkTree) -> None:
    lacking = patch(tree, "p", changing("src/none.c", "a", "b", "a\nb\n") + adding("src/a.c", "x"))
    words = refusal(tree, lacking).partition("PostgreSQL 18: ")[2]
    assert set(words.split("; ")) == {
        "src/none.c, which the tree does not have",
        "src/a.c, which the tree has already",
    }


def test_patch_that_is_applied_already(tree: WorkTree) -> None:
    twice = patch(tree, "p", changing("src/a.c", "one", "eins"))
    assert refusal(tree, twice, twice).endswith(
        " with p applied: src/a.c, hunk 1 (line 1) (it seems to be applied already)"
    )
    once = patch(tree, "q", changing("src/a.c", "eins", "x", "eins\ntwo\n"))
    assert "already" not in refusal(tree, once)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("error: cannot write: No space left on device\n", "no space left on the device"),
        ("x" * 200 + "error: of a new kind, " + "y" * 290 + "\n", "new kind, " + "y" * 290),
        (b"error: \xff\n", "error: \ufffd"),
        ("error: src/a.c: already exists in working directory\n" * 2,
         "src/a.c, which the tree has already"),
    ],
)  # fmt: skip
def test_other_words_of_git(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch, words: str | bytes, answer: str
) -> None:
    text = changing("src/a.c", "one", "eins")
    calls: list[tuple[Any, ...]] = []
    apply = git.apply

    def fail(
        given: bytes, *options: str, tree: Path | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        if tree is None:
            return apply(given, *options)
        calls.append((given, *options, tree))
        errors = words if isinstance(words, bytes) else words.encode()
        return subprocess.CompletedProcess([], 1, b"", errors)

    monkeypatch.setattr(git, "apply", fail)
    message = refusal(tree, patch(tree, "p", text))
    assert message.endswith(f" does not apply to PostgreSQL 18: {answer}")
    assert calls == [
        (text.encode(), tree.path),
        (text.encode(), "--reverse", "--check", tree.path),
        # What a patch on top of it could stand on.
        (text.encode(), tree.path),
    ]


def test_patches_that_cannot_be_read(tree: WorkTree) -> None:
    missing = Patch("p", tree.path.with_name("none.patch"))
    words = rf"^patch {missing.file}: No such file or directory$"
    acts: list[Callable[[], object]] = [
        lambda: touched_files(missing), lambda: tree.apply([missing], "x"),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(LabError, match=words):
            act()
    prose = patch(tree, "prose", "Dear all,\n")
    with pytest.raises(LabError, match=rf"^patch {prose.file}: holds no unified diff"):
        touched_files(prose)
    cut = patch(tree, "cut", changing("src/a.c", "one", "eins")[:-8])
    with pytest.raises(LabError, match=rf"^patch {cut.file}: b/src/a.c: hunk 1 is cut off"):
        touched_files(cut)


def test_paths_are_told_once(tree: WorkTree) -> None:
    renamed = "diff --git a/src/a.c b/src/z.c\nsimilarity index 100%\nrename from src/a.c\n" \
              "rename to src/z.c\n"  # fmt: skip
    assert touched_files(patch(tree, "p", changing("src/a.c", "one", "x"))) == ["src/a.c"]
    assert sorted(touched_files(patch(tree, "q", renamed))) == ["src/a.c", "src/z.c"]


def test_what_a_kill_left_is_in_the_words_of_an_error(tree: WorkTree) -> None:
    """A link that somebody put where an applied patch has its file is told by its place."""
    tree.apply([patch(tree, "p", changing("src/a.c", "one", "eins"))], "the tree")
    (tree.path / "src" / "a.c").unlink()
    (tree.path / "src" / "a.c").symlink_to("b.c")
    other = patch(tree, "q", changing("src/b.c", "line 1", "x"))
    with pytest.raises(LabError, match=rf"^{tree.path}: src/a.c is, or lies behind, a symbolic"):
        tree.apply([other], "the tree")
