"""Builds: nothing twice, and everything that was touched."""

import itertools
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wallab import paths
from wallab.errors import LabError
from wallab.record import series
from wallab.record.series import Series
from wallab.servers import builder, buildsystem, patches
from wallab.servers.builder import Builder, Server
from wallab.servers.patches import Patch, patches_of, series_for
from wallab.servers.source import Source


def test_every_variant_is_an_installed_server(servers: dict[str, Server]) -> None:
    assert set(servers) == set(series.read().variant)
    for server in servers.values():
        version = subprocess.run(
            [server.path / "bin" / "postgres", "--version"], capture_output=True, text=True
        ).stdout
        assert server.build.version in version
        # Programs find their libraries beside them, wherever the tree is.
        linked = subprocess.run(
            ["ldd", server.path / "bin" / "psql"], capture_output=True, text=True
        ).stdout
        assert f"{server.path}/bin/../lib/libpq.so" in linked


def test_record_says_what_it_was_made_from(servers: dict[str, Server], source18: Source) -> None:
    record = json.loads((servers["both"].path / "build.json").read_text())
    assert record["source"] == source18.identity
    assert [patch["name"] for patch in record["patches"]] == [
        "reload-sync",
        "baseline",
        "direct-io",
        "gather-write",
    ]
    for patch in record["patches"]:
        file = paths.PATCHES / "18" / f"{patch['name']}.patch"
        assert patch["sha256"] == Patch(patch["name"], file).sha256


@pytest.mark.usefixtures("servers")
def test_same_inputs_build_nothing() -> None:
    begun = time.monotonic()
    result = subprocess.run(
        [paths.LAB / "scripts" / "build-variant", "all"], capture_output=True, text=True
    )
    seconds = time.monotonic() - begun
    assert result.returncode == 0
    assert "nothing to build" in result.stderr
    assert result.stdout.count("up to date") == len(series.read().variant)
    print(f"build-variant all with nothing changed: {seconds:.2f} s")


def test_touched_patch_concerns_only_its_variants(
    source18: Source, servers: dict[str, Server], tmp_path: Path
) -> None:
    system = buildsystem.choose("auto", source18)
    maker = Builder(source18, system)
    catalog = series.read()
    touched = tmp_path / "direct-io.patch"
    touched.write_text(f"A remark.\n{(paths.PATCHES / '18' / 'direct-io.patch').read_text()}")
    stale = set()
    for name in servers:
        patches = [
            Patch(p.name, touched) if p.name == "direct-io" else p
            for p in patches_of(catalog, name, source18)
        ]
        if maker.have(name, patches) is None:
            stale.add(name)
    assert stale == {"direct-io", "both"}


def test_tree_of_a_cache_that_was_moved_is_not_used(
    source18: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has absolute paths in it, and no build of it would work."""
    system = buildsystem.choose("auto", source18)
    homes = []
    for place in ("here", "moved", "here"):
        monkeypatch.setenv("WALLAB_CACHE", str(tmp_path / place))
        home = Builder(source18, system)._home
        assert home.parent == tmp_path / place / "trees"
        homes.append(home.name)
    assert homes[0] == homes[2] != homes[1]


def test_order_changes_few_patches_at_a_time(source18: Source) -> None:
    catalog = series.read()
    variants = {name: patches_of(catalog, name, source18) for name in catalog.variant}
    order = builder.cheapest_order(variants)
    assert order[0] == "stock"
    steps = [len(set(variants[a]) ^ set(variants[b])) for a, b in itertools.pairwise(order)]
    # gather-ring stands on stock alone: from there it takes two to all others.
    assert order[1] == "gather-ring"
    assert steps == [1, 2, *[1] * (len(order) - 3)]


def test_meson_of_a_version_without_it() -> None:
    old = Source("tarball", Path("x"), "15.18", "0")
    with pytest.raises(LabError, match="--build-system autoconf"):
        buildsystem.choose("meson", old)
    assert buildsystem.choose("auto", old).name == "autoconf"
    assert buildsystem.choose("auto", Source("tarball", Path("x"), "18.6", "0")).name == "meson"


@pytest.mark.parametrize(("version", "nearest"), [("9.6.1", min), ("14.20", min), ("20devel", max)])
def test_source_without_a_series_gets_the_nearest(
    version: str, nearest: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = series.read()
    source = Source("tarball", Path("x"), version, "0")
    patches._warn.cache_clear()
    names = {series_for(catalog, source) for _ in range(2)}
    assert names == {nearest(catalog.series, key=int)}
    assert capsys.readouterr().err.count(f"on PostgreSQL {source.major}; taking") == 1


def test_series_between_two() -> None:
    catalog = msgspec.structs.replace(series.read(), series={"15": Series(), "19": Series()})
    assert series_for(catalog, Source("tarball", Path("x"), "16.1", "0")) == "15"
    assert series_for(catalog, Source("tarball", Path("x"), "17.1", "0")) == "19"
