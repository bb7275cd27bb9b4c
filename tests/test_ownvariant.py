"""A reviewer's own patches as a variant, from the command that the reviewer types."""

import difflib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from wallab import paths
from wallab.command import build_variant
from wallab.errors import LabError
from wallab.record import matrix, series
from wallab.record.build import Build
from wallab.record.ownvariant import OwnVariant, find, folder
from wallab.servers import checkresult, ownvariant, source
from wallab.servers.builder import Builder, Server
from wallab.servers.patches import Patch, patches_of
from wallab.servers.patching import WorkTree
from wallab.servers.source import Source
from wallab.servers.suite import refuse_unknown

NAME = f"own-{os.getpid()}"
PROGRAM = "src/bin/pg_test_fsync/pg_test_fsync.c"
SAID = "Compare file sync methods using"


def lab(command: str, *arguments: str | Path) -> tuple[int, str, str]:
    """Run one of the lab's commands; return its exit code, output and messages."""
    result = subprocess.run(
        [paths.LAB / "scripts" / command, *arguments], capture_output=True, text=True
    )
    return result.returncode, result.stdout, result.stderr


def change(tree: Path, name: str, before: str, after: str, prefix: str = "") -> str:
    """A diff that replaces words in a file of the tree."""
    old = (tree / name).read_text()
    assert before in old
    new = old.replace(before, after)
    return "".join(
        difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True),
            f"{prefix or 'a/'}{name}", f"{prefix or 'b/'}{name}",
        )
    )  # fmt: skip


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty build folder, for what needs no server."""
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    return tmp_path / "build"


@pytest.fixture
def removed() -> Iterator[None]:
    """Own variants of the test go away again."""
    yield
    for name in (f"{NAME}-on", NAME):
        if folder(name).exists():
            ownvariant.remove(name)


@pytest.mark.usefixtures("removed")
def test_from_patches_to_cells(tree18: Path, servers: dict[str, Server], tmp_path: Path) -> None:
    first = tmp_path / "v1-0001-weigh.patch"
    first.write_text(change(tree18, PROGRAM, SAID, "Weigh sync methods using"))
    second = tmp_path / "v1-0002-note.diff"
    second.write_text(change(tree18, "src/backend/access/transam/README", "WAL", "W A L"))
    code, output, errors = lab("build-variant", "--patch", first, second, "--name", NAME)
    assert code == 0, errors
    assert f"{NAME}: PostgreSQL 18." in output
    server = servers["stock"].path.parent / NAME
    program = (server / "bin" / "pg_test_fsync").read_bytes()
    assert b"Weigh sync methods using" in program
    record = json.loads((server / "build.json").read_text())
    assert [patch["name"] for patch in record["patches"]] == ["v1-0001-weigh", "v1-0002-note"]

    # The lab has copies: the files may vanish, and nothing is built again.
    first.unlink()
    code, output, errors = lab("build-variant", NAME)
    assert (code, "nothing to build" in errors) == (0, True)
    assert NAME in lab("build-variant", "--list")[1]
    code, output, _ = lab(
        "run-matrix", "--dry-run", "--preset", "smoke", "--variants", f"stock,{NAME}"
    )
    assert {line.split()[0] for line in output.splitlines()} == {"stock", NAME}

    # Another one on it; it must go first.
    third = tmp_path / "third.patch"
    third.write_text(change(tree18, PROGRAM, "Direct I/O is not supported", "No direct I/O"))
    assert lab("build-variant", "--patch", third, "--name", f"{NAME}-on", "--on", NAME)[0] == 0
    assert "stand on it" in lab("build-variant", "--remove", NAME)[2]
    assert lab("build-variant", "--remove", f"{NAME}-on")[0] == 0

    # Replaced by other patches, under the same name.
    code, output, errors = lab("build-variant", "--patch", third, "--name", NAME)
    assert code == 0, errors
    assert b"Weigh sync" not in (server / "bin" / "pg_test_fsync").read_bytes()

    # What does not apply changes nothing.
    bad = tmp_path / "bad.patch"
    bad.write_text(re.sub(r"^-(?!-)", "-x", third.read_text(), flags=re.MULTILINE))
    code, output, errors = lab("build-variant", "--patch", bad, "--name", NAME)
    assert (code, output) == (2, "")
    assert f"({bad}) does not apply" in errors
    assert f"{PROGRAM}, hunk 1" in errors
    assert lab("build-variant", NAME)[2].endswith("nothing to build\n")

    code, output, _ = lab("build-variant", "--remove", NAME)
    assert (code, server.exists()) == (0, False)
    assert NAME not in lab("build-variant", "--list")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--patch", "/nonexistent.patch", "--name", "x"], "/nonexistent.patch: No such file"),
        (["--patch", "/dev/null", "--name", "both"], "the lab has that name itself"),
        (["--patch", "/dev/null", "--name", "all"], "the lab has that name itself"),
        (["--patch", "/dev/null", "--name", "../x"], "--name ../x: expected at most 40"),
        (["--patch", "/dev/null", "--name", "x", "--on", "bath"], "--on bath: there is no such"),
        (["--patch", "/dev/null", "--name", "x"], "/dev/null: is empty"),
        (["--patch", "/dev/null"], "/dev/null: is empty"),
        (["--name", "x", "both"], "takes --patch FILE…"),
        (["--patch", "a", "--patch", "b", "c", "--name", "x"], "where does it stand"),
        (["--remove", "both"], "no such variant of your own"),
        (["--remove", "x/../y"], "no such variant of your own"),
        (["both", "--suite", "regress"], "add --check"),
        (["both", "--check", "--suite", "nosuch"], "--suite nosuch: the tree has no tests nosuch/"),
    ],
)
def test_refusals(arguments: list[str], message: str) -> None:
    code, output, errors = lab("build-variant", *arguments)
    assert (code, output) == (2, "")
    assert message in errors
    assert "Traceback" not in errors
    assert find("x") is None


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A folder that is a PostgreSQL source by its configure alone, with a suite of tests."""
    tree = tmp_path / "tree"
    (tree / "src/bin/x/t").mkdir(parents=True)
    (tree / "src/bin/x/t/001_x.pl").touch()
    (tree / "src/bin/x/t/lib/").mkdir()
    (tree / "src/bin/x/t/lib/y.pl").touch()
    (tree / "configure").write_text("# PostgreSQL 18.6\nPACKAGE_VERSION='18.6'\n")
    return tree


@pytest.mark.parametrize("suite", ["nosuch", "src/bin/nosuch", "src/bin", "src/bin/x/t/lib", "/"])
@pytest.mark.usefixtures("build")
def test_suite_that_there_is_not_is_refused_before_anything_is_built(
    suite: str, small_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Builder, "build")
    arguments = ["stock", "--source", str(small_tree), "--check", "--suite", "src/bin/x"]
    with pytest.raises(LabError, match=f"--suite {suite}: the tree has no tests"):
        build_variant.command.main([*arguments, "--suite", suite], standalone_mode=False)


def test_suite_that_a_patch_adds_is_there(small_tree: Path, tmp_path: Path) -> None:
    adds = tmp_path / "x.patch"
    adds.write_text("--- /dev/null\n+++ b/src/test/mine/t/001_a.pl\n@@ -0,0 +1 @@\n+1;\n")
    suites = ("src/test/mine", "regress", "methods", "src/bin/x/")
    tree = source.resolve(str(small_tree))
    refuse_unknown(suites, tree, [[Patch("x", adds)]])
    with pytest.raises(LabError, match="no tests src/test/mine/t"):
        refuse_unknown(suites, tree, [[Patch("x", adds)], []])


@pytest.mark.usefixtures("build")
def test_variant_remembers_what_it_was_made_of(
    small_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[str, Path]] = []

    def build(maker: Builder, variants: dict[str, list[Patch]]) -> list[Server]:
        (name,) = variants
        built.append((name, maker.source.location))
        made = Build(name, "18.6", "0", "directory", (), "meson", (), "cc", {}, "k", 1.0, "2026")
        return [Server(tmp_path / "server", made, fresh=True)]

    def said(*arguments: str | Path) -> str:
        result = CliRunner().invoke(build_variant.command, list(map(str, arguments)))
        assert result.exit_code == 0, result.output
        return result.stdout

    monkeypatch.setattr(Builder, "build", build)
    monkeypatch.chdir(tmp_path)
    new = ("--patch", a_patch(tmp_path), "--name")
    assert f"source {small_tree})" in said(*new, "mine", "--source", "tree")
    # From anywhere, and without being named again; by what stands on it, too.
    monkeypatch.chdir("/")
    assert f"source {small_tree})" in said("mine")
    assert f"source {small_tree})" in said(*new, "further", "--on", "mine")
    assert said("mine", "--source", "18").count(str(small_tree)) == 1
    assert [(name, folder == small_tree) for name, folder in built] == [
        ("mine", True), ("mine", True), ("further", True), ("mine", False),
    ]  # fmt: skip
    said(*new, "other")
    listed = said("--list")
    assert f"mine          on stock of source {small_tree}: x" in listed
    assert f"further       on mine of source {small_tree}: x" in listed
    assert "other         on stock of source 18: x" in listed


def test_source_is_remembered_by_a_name_that_is_good_anywhere() -> None:
    tree = Source("directory", Path("/srv/pg"), "18.6", "0")
    assert source.recorded("../pg", tree) == "/srv/pg"
    clone = msgspec.structs.replace(tree, kind="git")
    assert source.recorded("../pg@a@b", clone) == "/srv/pg@b"
    assert source.recorded("18", msgspec.structs.replace(tree, kind="tarball")) == "18"


def test_unknown_variant_for_the_matrix() -> None:
    code, _, errors = lab("run-matrix", "--variants", "stock,bath", "--dry-run")
    assert code == 2
    assert "--variants: axes.variant: unknown value “bath”" in errors


def test_presets_measure_the_same_cells_for_every_named_variant() -> None:
    experiment, _ = matrix.choose(matrix.read(), "thread", "smoke")
    changed = matrix.with_variants(experiment, ("stock", "both"))
    cells = matrix.cells(changed, changed.preset["smoke"])
    of = {
        name: [cell | {"variant": ""} for cell in cells if cell["variant"] == name]
        for name in ("stock", "both")
    }
    assert of["stock"] == of["both"] != []
    assert len(cells) == len(of["stock"]) + len(of["both"])


def a_patch(tmp_path: Path) -> Path:
    """A small patch."""
    file = tmp_path / "x.patch"
    file.write_text("--- a/src/x.c\n+++ b/src/x.c\n@@ -1 +1 @@\n-a\n+b\n")
    return file


def test_kill_while_adding_leaves_the_earlier_one(build: Path, tmp_path: Path) -> None:
    file = a_patch(tmp_path)
    with ownvariant.added("foo", "stock", [file]):
        pass
    before = find("foo")
    with pytest.raises(KeyboardInterrupt), ownvariant.added("foo", "both", [file]):
        raise KeyboardInterrupt
    assert find("foo") == before
    assert [variant.name for variant in (build / "variants").iterdir()] == ["foo"]


def test_variants_do_not_stand_on_themselves(build: Path, tmp_path: Path) -> None:
    file = a_patch(tmp_path)
    with ownvariant.added("a", "stock", [file]), ownvariant.added("b", "a", [file]):
        pass
    with ownvariant.added("b", "a", [file]):
        pass
    with pytest.raises(LabError, match="stands on it"):
        ownvariant.check_name("a", "b", ["stock"])
    assert build.exists()


@pytest.mark.usefixtures("build")
def test_patches_go_on_the_series_of_the_source(tmp_path: Path) -> None:
    with ownvariant.added("a", "both", [a_patch(tmp_path)]) as (own, _):
        assert isinstance(own, OwnVariant)
    old = Source("tarball", Path("x"), "15.18", "0")
    patches = patches_of(series.read(), "a", old)
    names = [patch.name for patch in patches]
    assert names == ["reload-sync", "baseline", "direct-io", "gather-write", "x"]
    assert patches[0].file.parent.name == "15"


def test_renames_deletions_and_empty_files_come_and_go(
    tree18: Path, source18: Source, tmp_path: Path
) -> None:
    path = tmp_path / "src"
    names = ["src/tools/pgindent/README", "src/tools/ccsym"]
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes((tree18 / name).read_bytes())
    deleted = (tree18 / names[1]).read_text().splitlines(keepends=True)
    file = tmp_path / "x.patch"
    file.write_text(
        f"diff --git a/{names[0]} b/src/new/README\nsimilarity index 100%\n"
        f"rename from {names[0]}\nrename to src/new/README\n"
        "diff --git a/src/empty b/src/empty\nnew file mode 100644\nindex 0000000..e69de29\n"
        f"diff --git a/{names[1]} b/{names[1]}\ndeleted file mode 100755\n"
        f"--- a/{names[1]}\n+++ /dev/null\n@@ -1,{len(deleted)} +0,0 @@\n"
        + "".join(f"-{line}" for line in deleted)
    )
    assert source.resolve("18") == source18
    tree = WorkTree(path)
    tree.apply([Patch("x", file)], "18")
    assert (path / "src/new/README").read_bytes() == (tree18 / names[0]).read_bytes()
    assert (path / "src/empty").read_bytes() == b""
    assert not (path / names[0]).exists()
    assert not (path / names[1]).exists()
    tree.restore()
    left = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert left == set(names)
    for name in names:
        assert (path / name).read_bytes() == (tree18 / name).read_bytes()


def test_removing_spares_the_checks_of_others(build: Path, tmp_path: Path) -> None:
    """The lab's own “both” by Autoconf lies in 18.6-autoconf/both."""
    name = "autoconf-both"
    with ownvariant.added(name, "both", [a_patch(tmp_path)]):
        pass
    checks = []
    for place in (f"18.6/{name}", "18.6-autoconf/both"):
        (build / place).mkdir(parents=True)
        (build / place / "build.json").write_text("{}")
        made = Build(
            Path(place).name, "18.6", "0", "tarball", (), "meson", (), "cc", {}, "k", 1.0, "2026"
        )
        checks.append(checkresult.folder_of(Server(build / place, made, fresh=False)))
    assert checks[0] != checks[1]
    for check in checks:
        check.mkdir(parents=True)
    removed = ownvariant.remove(name)
    assert not checks[0].exists()
    assert checks[0] in removed
    assert checks[1].is_dir()
