"""Unified diffs, read line by line: their files, where they lead, and what is no diff."""

import subprocess

import pytest

from wallab.errors import LabError
from wallab.servers import diff, git

HUNK = "@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n"


def read(text: str) -> list[diff.FileDiff]:
    """The files of a diff."""
    return diff.read(text.encode(), "W")


def refusal(text: str) -> str:
    """What is said of it."""
    with pytest.raises(LabError) as refused:
        read(text)
    return str(refused.value)


def both(old: str, new: str | None = None) -> str:
    """The two lines with paths."""
    return f"--- {old}\n+++ {new or old}\n"


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        (both("a/x.c", "b/x.c"), ["a/x.c", "b/x.c"]),
        (both("a/x y.c\t2026-11-23 08:00", "b/x y.c\t2026"), ["a/x y.c", "b/x y.c"]),
        (both('"a/x.c"', '"b/x.c" '), ["a/x.c", "b/x.c"]),
        (both("a/x.c\r", "b/x.c\r"), ["a/x.c", "b/x.c"]),
        (both("x.c"), ["x.c"]),
        (both("/dev/null", "b/x.c"), ["b/x.c"]),
        (both("a/X/dev/nullX", "/dev/null"), ["a/X/dev/nullX"]),
        ("diff --git a/x.c b/x.c\r\n" + both("a/x.c", "b/x.c"), ["a/x.c", "b/x.c"]),
    ],
)
def test_paths(text: str, headers: list[str]) -> None:
    (file,) = read(text + HUNK)
    assert file.headers == headers
    assert file.hunks == [1]
    assert b"".join(file.lines).decode() == text + HUNK


@pytest.mark.parametrize(
    "text",
    [
        both("a/../x.c", "b/x.c") + HUNK,
        both("a/x.c", "b/y/../x.c") + HUNK,
        both("a/x.c", "b/..") + HUNK,
        f"diff --git a/../x.c b/x.c\n{both('a/x.c', 'b/x.c')}{HUNK}",
        f"diff --git a/x.c b/../x.c\n{both('a/x.c', 'b/x.c')}{HUNK}",
    ],
)
def test_paths_that_lead_out(text: str) -> None:
    assert refusal(text).endswith(": leads out of the tree")


def test_names_with_dots_do_not() -> None:
    (file,) = read(both("a/x..c", "b/...") + HUNK)
    assert file.headers == ["a/x..c", "b/..."]


PATHS = both("a/x.c", "b/x.c")


@pytest.mark.parametrize(
    "hunk",
    [
        "@@ -1 +0,0 @@\n-one\n",
        "@@ -1,2 +0,0 @@\n-one\n-two\n",
        "@@ -0,0 +1 @@\n+one\n",
        "@@ -1,3 +1,3 @@\n one\n\n-two\n+zwei\n",
        "@@ -1,3 +1,3 @@\n one\n\r\n-two\n+zwei\n",
        "@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+two\n\\ No newline at end of file\n",
        "@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+two\n",
        "@@ -1,2 +1 @@\n one\n-two\n@@ -9 +8,2 @@ f()\n nine\n+ten\n",
        "@@ -1,3 +1 @@\n--- x\n context\n-++ y\n",
    ],
)
def test_hunks_are_taken_whole(hunk: str) -> None:
    text = PATHS + hunk
    first, last = read(f"words\n{text}words\n{PATHS}{HUNK}")
    assert b"".join(first.lines).decode() == text
    assert b"".join(last.lines).decode() == PATHS + HUNK
    assert first.hunks == ([1, 9] if "@@ -9" in hunk else [int(hunk[4])])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PATHS, "b/x.c: has no hunk"),
        (both("x.c"), "x.c: has no hunk"),
        (PATHS + "@@ -1,2 +1,2 @@\n-one\n+two\n", "b/x.c: hunk 1 is cut off or damaged"),
        (PATHS + "@@ -1 +x @@\n", "b/x.c: hunk 1 is cut off or damaged"),
        (PATHS + HUNK + "@@ -1 @@\n", "b/x.c: hunk 2 is cut off or damaged"),
        (PATHS + "@@ -1,3 +1,3 @@\n one\n", "b/x.c: hunk 1 is cut off or damaged"),
        (PATHS + "@@ -1,2 +1,2 @@\n one\n*two\n", "b/x.c: hunk 1 is cut off or damaged"),
        (PATHS + HUNK + "GIT binary patch\n", "b/x.c: is binary"),
        (PATHS + HUNK + "Binary files a/y and b/y differ\n", "is binary"),
        ("Binary files a/y and b/y differ\n", "is binary"),
        ("diff --git a/y b/z\nindex 1..2\nBinary files a/y and b/z differ\n", "b/z: is binary"),
        ("diff --git a/y b/z\nindex 1..2\nGIT binary patch\n", "b/z: is binary"),
        ("diff --git a/y b/z\nnew mode 120000\n",
         "b/z: is a symbolic link or a submodule, which no patch needs"),
        ("*** a/x.c\n--- b/x.c\n", "is a context diff; make a unified one (git diff, diff -u)"),
    ],
)  # fmt: skip
def test_what_is_no_diff(text: str, words: str) -> None:
    assert refusal(text) == f"patch W: {words}"


def test_words_are_left_out() -> None:
    assert read("") == read("words\n") == read("--- \n") == read("*** a\n") == []
    assert read("diff --git a/x b/x\nindex 1..2\n") == []
    (mode,) = read("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n")
    assert mode.headers == ["a/x", "b/x"]


@pytest.mark.parametrize(
    ("names", "depth"),
    [
        (["x.c"], 0),
        (["src/x.c", "contrib/y.c"], 0),
        (["src/x.c", "y.c"], 0),
        (["a/x.c"], 1),
        (["a/src/x.c", "src/x.c"], 1),
        (["postgresql-18/src/x.c"], 1),
    ],
)
def test_prefixes(names: list[str], depth: int) -> None:
    assert diff.depth([diff.FileDiff([], headers=names)]) == depth


BARE = (
    'diff --git src/x.c "src/\\303\\244.c"\nindex 1..2 100644\n--- src/x.c\t2026\n'
    '+++ "src/\\303\\244.c"\n@@ -1,2 +1,2 @@\n--- src/old\n+++ src/new\n context\n'
    "@@ -9,2 +9,1 @@\n--- src/more\n context\n"
    "--- src/gone.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    "--- /dev/null\t1970\n+++ src/new.c\n@@ -0,0 +1 @@\n+x\n"
)


def test_a_prefix_is_put_before_paths_alone() -> None:
    given = (
        'diff --git a/src/x.c "b/src/\\303\\244.c"\nindex 1..2 100644\n--- a/src/x.c\t2026\n'
        '+++ "b/src/\\303\\244.c"\n@@ -1,2 +1,2 @@\n--- src/old\n+++ src/new\n context\n'
        "@@ -9,2 +9,1 @@\n--- src/more\n context\n"
        "--- a/src/gone.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "--- a//dev/null\t1970\n+++ b/src/new.c\n@@ -0,0 +1 @@\n+x\n"
    ).replace("a//dev/null", "/dev/null")
    bare = BARE.replace("\t1970", "")
    assert diff.with_prefix(read(bare)).decode() == given.replace("\t1970", "")
    # What has one keeps it.
    assert diff.with_prefix(read(PATHS + HUNK)).decode() == PATHS + HUNK


def test_lines_of_git_may_have_dos_ends() -> None:
    text = f"diff --git x.c x.c\r\n{both('x.c')}{HUNK}"
    prefixed = f"diff --git a/x.c b/x.c\n{both('a/x.c', 'b/x.c')}{HUNK}"
    assert diff.with_prefix(read(text)).decode() == prefixed


def test_names_in_another_encoding() -> None:
    (file,) = diff.read(b"--- a/\xe4.c\n+++ b/\xe4.c\n" + HUNK.encode(), "W")
    assert file.headers == ["a/\ufffd.c", "b/\ufffd.c"]


# As git reads them.


def touched(text: str) -> list[list[str]]:
    """The paths of each file."""
    return diff.touched(read(text), "W")


def test_both_names_of_a_file_are_told() -> None:
    renamed = (
        "diff --git a/src/a b/src/b\nsimilarity index 100%\nrename from src/a\nrename to src/b\n"
    )
    assert touched(PATHS + HUNK + renamed) == [["x.c"], ["src/b", "src/a"]]
    with pytest.raises(LabError, match=r"^patch W: holds no unified diff"):
        touched("words\n")


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ([b" x y.c"], ""),
        ([b"src/./x.c"], "leads out of the tree: src/./x.c"),
        ([b"src//x.c"], "leads out of the tree: src//x.c"),
        ([b"src/../x.c"], "leads out of the tree: src/../x.c"),
        ([b"src/.GIT/x.c"], "leads out of the tree: src/.GIT/x.c"),
        ([b"a\tb"], r"a file's name is no printable UTF-8: 'a\tb'"),
        ([b"a\xff"], r"a file's name is no printable UTF-8: 'a\udcff'"),
        ([b"x.c", b"y.c"], "git does not read it as the 1 files it shows"),
        (None, "git does not take it: no \ufffd such error: patch"),
    ],
)
@pytest.mark.parametrize("reverse", [True, False])
def test_what_git_says(
    monkeypatch: pytest.MonkeyPatch, paths: list[bytes] | None, words: str, reverse: bool
) -> None:
    """Of either direction."""
    files = read(PATHS + HUNK)
    seen: list[tuple[object, ...]] = []

    def apply(text: bytes, *options: str) -> "subprocess.CompletedProcess[bytes]":
        seen.append((text, *options))
        if ("--reverse" in options) is not reverse:
            return subprocess.CompletedProcess([], 0, b"1\t1\tx.c\0", b"")
        errors = b"error: no \xff such error: patch\n"
        if paths is None:
            return subprocess.CompletedProcess([], 1, b"", errors)
        return subprocess.CompletedProcess([], 0, b"".join(b"1\t1\t%b\0" % p for p in paths), b"")

    assert diff._from_the_last() in (True, False)  # it has asked by then
    monkeypatch.setattr(git, "apply", apply)
    if words:
        with pytest.raises(LabError) as refused:
            diff.touched(files, "W")
        assert str(refused.value) == f"patch W: {words}"
    else:
        assert sorted(diff.touched(files, "W")[0]) == [" x y.c", "x.c"]
    text = (PATHS + HUNK).encode()
    ends = [(text, "--numstat", "-z"), (text, "--numstat", "-z", "--reverse")]
    assert seen == ends[: 1 if paths is None and not reverse else 2]
