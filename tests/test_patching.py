"""Patches on the real tree: every order and subset, refusals, and taking them back."""

import hashlib
import itertools
import os
import shutil
from pathlib import Path

import pytest

from wallab import paths
from wallab.errors import LabError
from wallab.record import series
from wallab.servers import patching, source
from wallab.servers.patches import Patch, patches_of
from wallab.servers.patching import WorkTree
from wallab.servers.source import Source


@pytest.fixture(scope="module")
def tree(tree18: Path, tmp_path_factory: pytest.TempPathFactory) -> WorkTree:
    """A tree whose patches come and go."""
    path = tmp_path_factory.mktemp("work") / "src"
    shutil.copytree(tree18, path, symlinks=True)
    return WorkTree(path)


@pytest.fixture(scope="module", params=sorted(series.read().series, reverse=True))
def series_tree(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, WorkTree]:
    """A series, and a tree of the major that it is written for.

    18 is fetched, 17 and 15 are taken where they were fetched before; trees that Debian does not
    have are named, as a path like $PATH, by WALLAB_TEST_SOURCES.
    """
    major = str(request.param)
    if major == "18":
        return major, request.getfixturevalue("tree")
    named = [source.resolve(name) for name in os.environ.get("WALLAB_TEST_SOURCES", "").split(":")
             if name]  # fmt: skip
    chosen = next((tree for tree in named if str(tree.major) == major), None)
    if chosen is None and (paths.cache() / "sources" / f"{major}.json").exists():
        chosen = source.resolve(major)
    if chosen is None:
        pytest.skip(
            f"no source of PostgreSQL {major}: “scripts/build-variant stock --source {major}” "
            "would fetch it where Debian has it; else name one in WALLAB_TEST_SOURCES"
        )
    path = tmp_path_factory.mktemp(f"series-{major}") / "src"
    source.unpack(chosen, path)
    return major, WorkTree(path)


def patch(name: str, major: str = "18") -> Patch:
    """The patch of the series for that major."""
    return Patch(name, paths.PATCHES / major / f"{name}.patch")


def content(path: Path) -> str:
    """A digest of all files of a tree."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            digest.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return digest.hexdigest()


BASELINE = ("reload-sync", "baseline")
INDEPENDENT = ("direct-io", "gather-write")
ORDERS = [
    order for size in range(3) for order in itertools.permutations(INDEPENDENT, size)
]  # (), each alone, both in both orders
POSTABLE = ("gather-ring", "reload-sync")


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "+".join(order) or "none")
def test_every_order_and_subset_applies_to_the_baseline(
    series_tree: tuple[str, WorkTree], order: tuple[str, ...]
) -> None:
    major, tree = series_tree
    tree.apply([patch(name, major) for name in (*BASELINE, *order)], major)
    leftovers = [*tree.path.rglob("*.rej"), *tree.path.rglob("*.orig")]
    assert leftovers == []
    tree.restore()


def test_order_makes_no_difference(series_tree: tuple[str, WorkTree]) -> None:
    major, tree = series_tree
    results = set()
    for order in itertools.permutations(INDEPENDENT):
        tree.apply([patch(name, major) for name in (*BASELINE, *order)], major)
        results.add(content(tree.path))
    tree.restore()
    assert len(results) == 1


@pytest.mark.parametrize("name", POSTABLE)
def test_what_could_be_posted_applies_to_stock(
    series_tree: tuple[str, WorkTree], name: str
) -> None:
    major, tree = series_tree
    tree.apply([patch(name, major)], major)
    assert patch(name, major).file.read_text().startswith("From ")
    tree.restore()


@pytest.mark.parametrize(
    "order",
    [("gather-write", "gather-ring"), ("gather-write", "direct-io", "gather-ring")],
    ids="+".join,
)
def test_gathering_across_the_ring_goes_on_gather_write(
    series_tree: tuple[str, WorkTree], order: tuple[str, ...]
) -> None:
    major, tree = series_tree
    tree.apply([patch(name, major) for name in (*BASELINE, *order)], major)
    tree.restore()


def test_gathered_writes_are_those_of_the_release(series_tree: tuple[str, WorkTree]) -> None:
    """gather-write takes the baseline's loop back; only 15's open flags stay those of 2005."""
    major, tree = series_tree
    written = tree.path / "src/backend/access/transam/xlog.c"
    tree.apply([patch("reload-sync", major)], major)
    released = written.read_text()
    tree.apply([patch(name, major) for name in (*BASELINE, "gather-write")], major)
    gathered = written.read_text()
    tree.restore()
    loop = slice(released.index("\nXLogWrite("), released.index("\nXLogSetAsyncXactLSN("))
    assert gathered[loop] == released[loop]
    if major != "15":
        assert gathered == released


def test_every_variant_applies_and_leaves_no_trace(
    tree: WorkTree, tree18: Path, source18: Source
) -> None:
    catalog = series.read()
    for variant in catalog.variant:
        tree.apply(patches_of(catalog, variant, source18), "18")
    tree.restore()
    assert content(tree.path) == content(tree18)


def test_patch_that_does_not_apply(tree: WorkTree, tree18: Path, tmp_path: Path) -> None:
    bad = tmp_path / "v3-0001-foo.patch"
    bad.write_text(
        "--- a/src/backend/access/transam/xlog.c\n"
        "+++ b/src/backend/access/transam/xlog.c\n"
        "@@ -10,3 +10,3 @@\n not there\n-nor this\n+but that\n at all\n"
    )
    with pytest.raises(LabError) as refusal:
        tree.apply([patch("baseline"), Patch("foo", bad)], "PostgreSQL 18 (the tree)")
    message = str(refusal.value)
    for part in ("foo", str(bad), "xlog.c, hunk 1", "PostgreSQL 18 (the tree)", "baseline applied"):
        assert part in message
    assert content(tree.path) == content(tree18)


def test_all_patches_that_do_not_apply_are_named(
    tree: WorkTree, tree18: Path, tmp_path: Path
) -> None:
    """What stands on one of them is judged by itself: its other files are there."""
    text = "--- a/{0}\n+++ b/{0}\n@@ -1,3 +1,3 @@\n{1}\n-{2}\n+{3}\n \n"
    title, old, *_ = (tree18 / "COPYRIGHT").read_text().splitlines()
    hunk = (f" {title}", old)
    first = tmp_path / "first.patch"
    first.write_text(
        text.format("COPYRIGHT", *hunk, "changed") + text.format("HISTORY", " no", "such", "line")
    )
    second = tmp_path / "second.patch"
    second.write_text(text.format("COPYRIGHT", hunk[0], "changed", "again"))
    third = tmp_path / "third.patch"
    third.write_text(text.format("COPYRIGHT", " no", "such", "line"))
    wanted = [Patch(file.stem, file) for file in (first, second, third)]
    with pytest.raises(LabError) as refusal:
        tree.apply(wanted, "18")
    lines = str(refusal.value).splitlines()
    assert [line.split()[1] for line in lines] == ["first", "third"]
    assert "HISTORY, hunk 1" in lines[0]
    assert "COPYRIGHT, hunk 1" in lines[1]
    assert content(tree.path) == content(tree18)


def test_documentation_that_does_not_apply_is_left_out(
    tree: WorkTree, tree18: Path, tmp_path: Path
) -> None:
    """A neighbour's change of a page keeps nobody from the server; code that fails does."""
    page = "doc/src/sgml/wal.sgml"
    good = patch("reload-sync").file.read_text()
    bad = tmp_path / "bad.patch"
    line = next(line for line in good.splitlines() if line.startswith("-   WAL data to disk and"))
    bad.write_text(good.replace(line, f"{line} there"))
    (refusal,) = tree.apply([Patch("bad", bad), patch("baseline")], "18")
    for part in ("documentation of patch bad", f"{page}, hunk 1", "is left out"):
        assert part in refusal
    changed = {
        str(file.relative_to(tree18))
        for folder in ("doc/src/sgml", "src/backend/access/transam")
        for file in (tree18 / folder).iterdir()
        if file.is_file() and file.read_bytes() != (tree.path / folder / file.name).read_bytes()
    }
    assert changed == {"src/backend/access/transam/xlog.c", page}  # baseline's own words apply
    tree.restore()
    assert content(tree.path) == content(tree18)


def test_patch_of_a_file_that_is_not_there(tree: WorkTree, tmp_path: Path) -> None:
    bad = tmp_path / "x.patch"
    bad.write_text("--- a/nosuch.c\n+++ b/nosuch.c\n@@ -1 +1 @@\n-a\n+b\n")
    with pytest.raises(LabError, match="does not have"):
        tree.apply([Patch("x", bad)], "18")


def test_applying_again_says_so(tree: WorkTree) -> None:
    with pytest.raises(LabError, match=r"baseline.*does not apply"):
        tree.apply([patch("baseline"), patch("baseline")], "18")


def test_kill_while_patching_is_put_right(tree: WorkTree, tree18: Path) -> None:
    tree.apply([patch("baseline")], "18")
    # As if the process had died here: another one finds the tree so.
    WorkTree(tree.path).restore()
    assert content(tree.path) == content(tree18)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd"])
def test_patch_that_leads_out_of_the_tree(tmp_path: Path, path: str) -> None:
    bad = tmp_path / "x.patch"
    bad.write_text(f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n")
    with pytest.raises(LabError, match="leads out of the tree"):
        patching.touched_files(Patch("x", bad))


def test_file_that_is_no_patch(tmp_path: Path) -> None:
    bad = tmp_path / "x.patch"
    bad.write_text("Dear all,\n")
    with pytest.raises(LabError, match="no unified diff"):
        patching.touched_files(Patch("x", bad))
