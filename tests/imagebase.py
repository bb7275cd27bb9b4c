"""What the tests build the image from: Debian's base image, a warm cache, and Python's packages.

No registry of images is needed, and what the machine has fetched or compiled is not done again.
"""

import contextlib
import functools
import hashlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import enginepackages
import pytest
from engine import Engine

from wallab import paths
from wallab.machine import process
from wallab.servers.source import Source

BASE = "wal-lab-test:base"
CACHE = "wal-lab-test:cache"
RELEASE = "bookworm"

SLIM = ("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man")
"""What the slim variants of Debian's images go without."""
DPKG = "".join(f"path-exclude=/{folder}/*\n" for folder in SLIM) + (
    "path-include=/usr/share/doc/*/copyright\n"
)
APT = """\
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
APT::Update::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
Acquire::GzipIndexes "true";
"""
SOURCES = f"""\
deb http://deb.debian.org/debian {RELEASE} main
deb http://deb.debian.org/debian {RELEASE}-updates main
deb http://deb.debian.org/debian-security {RELEASE}-security main
"""


def _bootstrapped() -> Path:
    """Return a tarball of Debian's base as its slim image has it, made by debootstrap once."""
    tarball = enginepackages.home() / f"base-{RELEASE}.tar"
    if tarball.exists():
        return tarball
    environment = enginepackages.environment(enginepackages.provide())
    address, options = enginepackages.archive()
    key = options.strip("[]").partition("signed-by=")[2]
    root = enginepackages.home() / "base"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    command: list[str | Path] = [
        "debootstrap", "--variant=minbase", *([f"--keyring={key}"] if key else []),
        RELEASE, root, address,
    ]  # fmt: skip
    try:
        # In namespaces, in which its mounts end with it.
        command = ["unshare", *process.CONTAINER, *command]
        with (
            (enginepackages.home() / "debootstrap.log").open("wb") as log,
            process.started(command, environment=environment, stdout=log, stderr=log) as child,
        ):
            code = child.wait(1800)
        if code:
            ending = Path(log.name).read_text(errors="replace").strip().splitlines()[-1:]
            pytest.skip(f"there is no base image, and debootstrap fails: {' '.join(ending)}")
        (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(DPKG)
        (root / "etc/apt/apt.conf.d/docker").write_text(APT)
        (root / "etc/apt/sources.list").write_text(SOURCES)
        for folder in (*SLIM, "var/cache/apt", "var/lib/apt/lists", "var/log", "dev"):
            for part in (root / folder).iterdir():
                if not part.is_dir() or part.is_symlink():
                    part.unlink()
                else:
                    shutil.rmtree(part)
        partial = tarball.with_suffix(".partial")
        pack = ["--numeric-owner", "--create", "--file", str(partial), "."]
        tar = ["tar", "--directory", str(root), *pack]
        subprocess.run(tar, check=True, capture_output=True, timeout=600)
        partial.rename(tarball)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return tarball


def _take(engine: Engine, tarball: Path, name: str) -> None:
    taken = engine.call("import", tarball, name)
    assert taken.returncode == 0, taken.stderr


def provide_base(engine: Engine) -> None:
    """Give the engine a base image under a name of the tests': a registry's, else one made here."""
    official = f"docker.io/library/debian:{RELEASE}-slim"
    if not engine.own and engine.call("pull", "--quiet", official).returncode == 0:
        assert engine.call("tag", official, BASE).returncode == 0
    else:
        _take(engine, _bootstrapped(), BASE)


def provide_cache(engine: Engine, source: Source, folder: Path) -> None:
    """Give the engine an image of this machine's compiler cache and of a source by major."""
    tarball = folder / "cache.tar"
    record = f"sources/{source.major}.json"
    parts = ["ccache", record, f"sources/{source.location.name}"]
    # Statistics stay here, so that the image's tell of its own build.
    tar: list[str | Path] = [
        "tar", "--directory", paths.cache(), "--transform", "s,^,var/cache/wal-lab/,",
        "--exclude", "ccache/tmp", "--exclude", "stats", "--create", "--file", tarball, *parts,
    ]  # fmt: skip
    packed = subprocess.run(tar, capture_output=True, text=True, timeout=600)
    assert packed.returncode in {0, 1}, packed.stderr  # 1: somebody else compiles meanwhile
    _take(engine, tarball, CACHE)
    tarball.unlink()


def _wheels() -> Path:
    """Return a folder with the packages of requirements.txt, fetched once."""
    requirements = paths.LAB / "requirements.txt"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    target = enginepackages.home() / f"wheels-{digest[:16]}"
    if not target.exists():
        partial = enginepackages.home() / "wheels.partial"
        shutil.rmtree(partial, ignore_errors=True)
        command: list[str | Path] = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--require-hashes", "--requirement", requirements, "--dest", partial,
        ]  # fmt: skip
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=1200)
        partial.rename(target)
    return target


class _Quiet(SimpleHTTPRequestHandler):
    """A folder's files, without a line for each request."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served_wheels(engine: Engine) -> Iterator[list[str]]:
    """Yield the build arguments by which pip takes Python's packages from this machine's loopback.

    None for an engine whose builds have a network of their own.
    """
    if not engine.network:
        yield []
        return
    handler = functools.partial(_Quiet, directory=str(_wheels()))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield [
                "--build-arg", "PIP_NO_INDEX=1",
                "--build-arg", f"PIP_FIND_LINKS=http://127.0.0.1:{server.server_port}/",
            ]  # fmt: skip
        finally:
            server.shutdown()
