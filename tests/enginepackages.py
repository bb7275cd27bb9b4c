"""Debian's packages of container engines, unpacked beside the machine's own and not installed."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from wallab import paths
from wallab.servers import debian

PACKAGES = ("docker.io", "podman", "runc", "debootstrap")
FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")


def home() -> Path:
    """The folder for what the tests of the image keep between runs; the lab's cache."""
    folder = paths.cache() / "image"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def codename() -> str:
    """Return the name of this machine's Debian release; the test is skipped on other systems."""
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        pytest.skip("no engine runs here, and one of the test's own takes Debian's packages")
    return release["VERSION_CODENAME"]


def archive() -> tuple[str, str]:
    """Return the machine's Debian archive and its options; the test is skipped without one."""
    archives = debian.archives()
    if not archives:
        pytest.skip("no engine runs here, and no Debian archive stands in apt's sources")
    return archives[0]


def provide() -> Path:
    """Return a folder with what this machine lacks of engines and of what they depend on.

    Fetched once, by the archive's signature; the test is skipped where that cannot be done.
    """
    release = codename()
    target = home() / f"packages-{release}"
    if target.exists():
        return target
    address, options = archive()
    apt, partial = home() / "apt", home() / "packages.partial"
    for old in (apt, partial):
        shutil.rmtree(old, ignore_errors=True)
    try:
        debian.configure(
            apt,
            [
                f"deb {options} {address} {release} main",
                f"deb {options} {address} {release}-updates main",
            ],
        )
        debian.apt(apt, "apt-get", "-qq", "update")
        command = ["-qq", "--yes", "--no-install-recommends", "--download-only", "install"]
        # It only reads what is installed, and so needs no lock.
        debian.apt(apt, "apt-get", "-o", "Debug::NoLocking=true", *command, *PACKAGES)
        partial.mkdir()
        for package in sorted((apt / "cache" / "archives").glob("*.deb")):
            unpack = ["dpkg-deb", "--extract", str(package), str(partial)]
            subprocess.run(unpack, check=True, capture_output=True, timeout=300)
        partial.rename(target)
    except debian.NotInDebian as reason:
        pytest.skip(f"no engine runs here, and Debian's archive does not give one: {reason}")
    finally:
        for old in (apt, partial):
            shutil.rmtree(old, ignore_errors=True)
    return target


def environment(packages: Path) -> dict[str, str]:
    """Return an environment in which the unpacked programs run, before the machine's own."""
    programs = [str(packages / folder) for folder in FOLDERS]
    libraries = [
        str(folder)
        for pattern in ("lib/*-linux-gnu*", "usr/lib/*-linux-gnu*")
        for folder in sorted(packages.glob(pattern))
    ]
    path = os.environ.get("PATH", os.defpath)
    variables = {**os.environ, "PATH": ":".join([*programs, path, "/usr/sbin", "/sbin"])}
    if libraries:
        variables["LD_LIBRARY_PATH"] = ":".join(libraries)
    if (scripts := packages / "usr/share/debootstrap").exists():
        variables["DEBOOTSTRAP_DIR"] = str(scripts)
    return variables
