"""What builds cost, and whether two builds of the same are the same."""

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from benchmarks import buildcost, installed
from benchmarks.buildcost import Variants
from wallab import paths
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.record import series
from wallab.record.build import AppliedPatch, Build
from wallab.servers.builder import Server
from wallab.servers.patches import Patch
from wallab.servers.patching import WorkTree


class Printer:
    """A maker whose servers are a file that says what they were made from, built if it is new."""

    def __init__(self, folder: Path, *, stamped: bool = False) -> None:
        self.folder = folder
        self.builds = 0
        self._stamped = stamped

    def build(self, variants: Variants) -> list[Server]:
        """Write what has changed."""
        return [self._server(name, patches) for name, patches in variants.items()]

    def _server(self, name: str, patches: list[Patch]) -> Server:
        path = self.folder / name
        applied = tuple(AppliedPatch(patch.name, patch.sha256) for patch in patches)
        key = repr(applied)
        if (path / "build.json").exists():
            build = jsonfile.load(path / "build.json", Build)
            if build.key == key:
                return Server(path, build, fresh=False)
        self.builds += 1
        (path / "bin").mkdir(parents=True, exist_ok=True)
        stamp = f" {self.builds}" if self._stamped else ""
        (path / "bin" / "postgres").write_text(key + stamp)
        build = Build(name, "18.6", "x", "tarball", applied, "meson", (), "cc", {}, key,
                      float(self.builds), f"2026-{self.builds}")  # fmt: skip
        jsonfile.save(path / "build.json", build)
        return Server(path, build, fresh=True)


@pytest.fixture
def variants() -> Variants:
    """The lab's variants with the patches for 18."""
    return {
        name: [Patch(patch, paths.PATCHES / "18" / f"{patch}.patch") for patch in variant.patches]
        for name, variant in series.read().variant.items()
    }


def test_each_step_builds_what_changed(tmp_path: Path, variants: Variants) -> None:
    maker = Printer(tmp_path / "build")
    cost = buildcost.measure(maker, variants, tmp_path)
    assert [step.built for step in cost.steps] == [
        ("stock",),
        tuple(name for name in variants if name != "stock"),
        (),
        ("direct-io", "both"),
    ]
    assert cost.differing is None
    assert cost.all_cold == cost.steps[0].seconds + cost.steps[1].seconds
    table = buildcost.text(cost)
    assert "direct-io.patch edited" in table
    assert "direct-io, both" in table


def test_two_builds_differ_in_their_times_only(tmp_path: Path, variants: Variants) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    maker = Printer(tmp_path / "build")
    cost = buildcost.measure(maker, variants, tmp_path, lambda: shutil.rmtree(cache))
    assert not cache.exists()
    assert cost.steps[-1].built == tuple(variants)
    assert cost.differing == {name: [] for name in variants}
    assert "both: two cold builds differ in nothing but build.json: built, seconds" in (
        buildcost.text(cost)
    )


def test_build_that_is_not_reproducible_is_told(tmp_path: Path, variants: Variants) -> None:
    maker = Printer(tmp_path / "build", stamped=True)
    cost = buildcost.measure(maker, variants, tmp_path, lambda: None)
    assert cost.differing == {name: ["bin/postgres"] for name in variants}
    assert "stock: two cold builds DIFFER in bin/postgres" in buildcost.text(cost)


@pytest.mark.parametrize("major", ["18", "17", "15"])
def test_edit_changes_one_statement(major: str) -> None:
    before = (paths.PATCHES / major / "direct-io.patch").read_bytes()
    after = buildcost.edited(before)
    changed = [
        (old, new)
        for old, new in zip(before.split(b"\n"), after.split(b"\n"), strict=True)
        if old != new
    ]
    assert len(changed) == 1
    assert changed[0][1] == changed[0][0] + b";"


def test_edited_patch_applies(tree18: Path, tmp_path: Path) -> None:
    tree = WorkTree(tmp_path / "src")
    shutil.copytree(tree18, tree.path, symlinks=True)
    folder = paths.PATCHES / "18"
    below = [Patch(name, folder / f"{name}.patch") for name in ("reload-sync", "baseline")]
    original = Patch("direct-io", folder / "direct-io.patch")
    edited = tmp_path / "direct-io.patch"
    edited.write_bytes(buildcost.edited(original.file.read_bytes()))
    texts = []
    for patch in (original, msgspec.structs.replace(original, file=edited)):
        tree.apply([*below, patch], "18")
        texts.append((tree.path / "src/backend/access/transam/xlog.c").read_text())
        tree.restore()
    assert len(texts[1]) == len(texts[0]) + 1


def test_patch_without_such_code_is_refused() -> None:
    with pytest.raises(LabError, match="adds no statement"):
        buildcost.edited(b"--- a/x.c\n+++ b/x.c\n@@ -0,0 +1 @@\n+int x;\n")


def test_trees_are_compared_by_all_that_counts(tmp_path: Path) -> None:
    server, other = tmp_path / "one", tmp_path / "other"
    (server / "lib").mkdir(parents=True)
    (server / "lib" / "x.so.1").write_bytes(b"code")
    (server / "lib" / "x.so").symlink_to("x.so.1")
    jsonfile.save(server / "build.json", {"key": "k", "seconds": 1.0, "built": "now"})
    shutil.copytree(server, other, symlinks=True)
    jsonfile.save(other / "build.json", {"key": "k", "seconds": 2.0, "built": "then"})
    os.utime(other / "lib" / "x.so.1", (0, 0))
    assert installed.differences(server, other) == ["build.json"]
    assert installed.unexpected(server, other) == []
    (other / "lib" / "x.so").unlink()
    (other / "lib" / "x.so").symlink_to("x.so.2")
    (other / "lib" / "x.so.1").chmod(0o755)
    (other / "more").mkdir()
    jsonfile.save(other / "build.json", {"key": "other", "built": "then", "new": 1})
    assert installed.unexpected(server, other) == [
        "lib/x.so", "lib/x.so.1", "more", "build.json: key", "build.json: new"
    ]  # fmt: skip


def test_command_tells_its_options() -> None:
    usage = subprocess.run(
        [paths.LAB / ".venv/bin/python", paths.LAB / "benchmarks/build_cost.py", "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    assert "--twice" in usage
