"""What the tests share: the real source, built servers, and what this machine can do."""

import os
import shutil
import subprocess
from pathlib import Path

import nbdserver
import pytest

from wallab import paths
from wallab.command.test import SANITIZERS
from wallab.machine import process
from wallab.record import series
from wallab.servers import builder, buildsystem, source
from wallab.servers.builder import Server
from wallab.servers.patches import patches_of
from wallab.servers.source import Source

if os.geteuid() == 0:
    # Tests look whether anything is left behind, and a lab at work has its own in the usual place.
    os.environ.setdefault("WALLAB_RUNTIME", "/run/wal-lab-test")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --sanitized."""
    parser.addoption(
        "--sanitized", action="store_true", help="build the lab's C with the sanitizers"
    )


def lacking_for_drives() -> str:
    """Say why this machine cannot make simulated drives; nothing if it can."""
    if os.geteuid() != 0:
        return "needs root for mounts and loop devices"
    if not os.access("/dev/fuse", os.W_OK):
        return "needs FUSE (/dev/fuse)"
    if not os.access("/dev/loop-control", os.W_OK):
        return "needs loop devices (/dev/loop-control)"
    if reason := process.namespaces_refused("--mount"):
        return f"needs the right to mount (CAP_SYS_ADMIN): {reason}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of the real stack, with the reason, where they cannot run."""
    if reason := lacking_for_drives():
        for item in items:
            if "stack" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def sanitizers(request: pytest.FixtureRequest) -> list[str]:
    """Options of meson for a build with the sanitizers, where the tests were told to."""
    if not request.config.getoption("--sanitized"):
        return []
    library = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("the compiler has no sanitizers (libasan)")
    return SANITIZERS


@pytest.fixture(scope="session")
def drive_build(tmp_path_factory: pytest.TempPathFactory, sanitizers: list[str]) -> Path:
    """The drive compiled with every warning an error, as its project file says."""
    folder = tmp_path_factory.mktemp("drive")
    subprocess.run(
        ["meson", "setup", *sanitizers, folder, paths.DRIVE], check=True, capture_output=True
    )
    done = subprocess.run(["meson", "compile", "-C", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="session")
def plugin(drive_build: Path, sanitizers: list[str]) -> Path:
    """The drive as a plugin of nbdkit, where it could be built."""
    if shutil.which("nbdkit") is None:
        pytest.skip("no nbdkit")
    file = drive_build / "nbdkit-waldrive.so"
    if not file.exists():
        pytest.skip("no headers of nbdkit (nbdkit-plugin-dev)")
    assert bool(nbdserver.loading(file)) == bool(sanitizers)
    return file


@pytest.fixture(scope="session")
def source18() -> Source:
    """PostgreSQL 18's source."""
    return source.resolve("18")


@pytest.fixture(scope="session")
def tree18(source18: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked tree of PostgreSQL 18, not to be changed."""
    tree = tmp_path_factory.mktemp("source") / "postgresql"
    source.unpack(source18, tree)
    return tree


@pytest.fixture(scope="session")
def servers(source18: Source) -> dict[str, Server]:
    """All variants of PostgreSQL 18, installed."""
    catalog = series.read()
    variants = {name: patches_of(catalog, name, source18) for name in catalog.variant}
    system = buildsystem.choose("auto", source18)
    return {s.build.variant: s for s in builder.Builder(source18, system).build(variants)}
