"""Install what the lab needs on this machine: Debian packages, users, a virtual environment.

Standard library only: it runs before anything is installed. Asks nothing, says what it does;
with nothing to do it takes some 50 ms.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from wallab.errors import MachineError
from wallab.paths import DIRECT_CP, DRIVE, LAB, TURNS, cache

SERVER_USER = "wallab"
"""The system user that PostgreSQL runs as when the lab itself runs as root."""

BUILD_USER = "wallab-build"
"""The one that builds releases with the lab's own patches then, and may write what all builds read.
"""

GUEST_USER = "wallab-guest"
"""The one that builds and tests what strangers wrote; it owns nothing that outlives a build."""

USERS = {
    SERVER_USER: "the servers",
    BUILD_USER: "builds",
    GUEST_USER: "builds of strangers' patches",
}

# Debian package -> the command that shows on other systems that it is there.
PACKAGES: dict[str, dict[str, str]] = {
    "base": {"python3-venv": "python3"},
    "build": {
        "bison": "bison",
        "bubblewrap": "bwrap",
        "bzip2": "bzip2",
        "ccache": "ccache",
        "flex": "flex",
        "gcc": "gcc",
        "git": "git",
        "libc6-dev": "gcc",
        "libipc-run-perl": "perl",
        "liblz4-dev": "pkg-config",
        "libreadline-dev": "pkg-config",
        "liburing-dev": "pkg-config",
        "libzstd-dev": "pkg-config",
        "make": "make",
        "meson": "meson",
        "ninja-build": "ninja",
        "perl": "perl",
        "pkg-config": "pkg-config",
        "procps": "ps",
        "xz-utils": "xz",
        "zlib1g-dev": "pkg-config",
    },
    "drive": {
        "gcc": "gcc",
        "libc6-dev": "gcc",
        "libfuse3-dev": "pkg-config",
        "meson": "meson",
        "mount": "losetup",
        "ninja-build": "ninja",
        "pkg-config": "pkg-config",
    },
    "filesystems": {
        "btrfs-progs": "mkfs.btrfs",
        "e2fsprogs": "mkfs.ext4",
        "xfsprogs": "mkfs.xfs",
    },
    "browser": {
        "chromium": "chromium",
        "chromium-driver": "chromedriver",
    },
    "fleet": {
        "openssl": "openssl",
    },
    "virtual": {
        "qemu-system-x86": "qemu-system-x86_64",
    },
    "test": {
        "bonnie++": "bonnie++",
        "clang": "clang",
        "dmsetup": "dmsetup",
        "fio": "fio",
        "hdparm": "hdparm",
        "libclang-rt-dev": "clang",
        "nbdkit": "nbdkit",
        "nbdkit-plugin-dev": "nbdkit",
        "libperl-critic-perl": "perlcritic",
        "nvme-cli": "nvme",
        "perltidy": "perltidy",
        "qemu-system-x86": "qemu-system-x86_64",
        "sdparm": "sdparm",
        "shellcheck": "shellcheck",
        "strace": "strace",
        "sysbench": "sysbench",
    },
}

UNPACKED = {"filesystems", "virtual"}
"""What root has installed. For others a virtual machine unpacks it into the cache when it needs it,
and other machines take root anyway."""


class SetupError(Exception):
    """This machine lacks something that cannot be installed from here."""


def say(text: str) -> None:
    """Print one line of progress on standard error."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def run(command: list[str], **environment: str) -> None:
    """Run a command with its output on standard error; SetupError with what to do if it fails."""
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=os.environ | environment
    )
    if result.returncode:
        raise SetupError(f"“{' '.join(command[:4])} …” failed; its messages are above")


def missing_packages(names: Iterable[str]) -> list[str]:
    """Return those of the Debian packages that are not installed."""
    wanted = sorted(set(names))
    states = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted],
        capture_output=True,
        text=True,
    ).stdout
    installed = {line.split()[0] for line in states.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]


def install_packages(groups: list[str]) -> None:
    """Install the packages of the groups; where there is no apt, check for their commands."""
    if os.geteuid() != 0 and shutil.which("apt-get"):
        groups = [group for group in groups if group not in UNPACKED]
    install({name: probe for group in groups for name, probe in PACKAGES[group].items()})


def install(wanted: dict[str, str]) -> None:
    """Install Debian packages, named with a command of theirs, unless they are there."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-query")):
        lacking = sorted({probe for probe in wanted.values() if not shutil.which(probe)})
        if lacking:
            raise SetupError(
                "this is no Debian system; please install these commands, and the headers of "
                f"readline, zlib, lz4, zstd and libfuse3: {', '.join(lacking)}"
            )
        return
    missing = missing_packages(wanted)
    if not missing:
        return
    apt = [
        "apt-get",
        "-qy",
        "-o",
        "Dpkg::Use-Pty=0",
        "-o",
        "DPkg::Lock::Timeout=300",
        "install",
        "--no-install-recommends",
    ]
    if os.geteuid() != 0:
        raise SetupError(f"as root, run: apt-get install {' '.join(missing)}")
    say(f"installing Debian packages: {' '.join(missing)}")
    run(["apt-get", "-qq", "update"])
    run([*apt, *missing], DEBIAN_FRONTEND="noninteractive")


def create_users() -> None:
    """Create the system users that servers and builds run as; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return
    for user, what in USERS.items():
        try:
            pwd.getpwnam(user)
        except KeyError:
            say(f"creating the system user {user} for {what}")
            run(
                [
                    "useradd",
                    "--system",
                    "--user-group",
                    "--no-create-home",
                    "--home-dir",
                    "/nonexistent",
                    "--shell",
                    "/usr/sbin/nologin",
                    user,
                ]
            )


def create_environment(requirements: Path) -> None:
    """Create .venv with exactly the pinned packages, unless it is already like that."""
    stamp = LAB / ".venv" / "requirements.sha256"
    digest = hashlib.sha256()
    for part in (requirements.read_bytes(), sys.version.encode(), str(LAB).encode()):
        digest.update(part)
    fingerprint = f"{requirements.name} {digest.hexdigest()}"
    if stamp.exists():
        have = stamp.read_text().splitlines()
        if fingerprint in have:
            return
    else:
        have = []
    python = LAB / ".venv" / "bin" / "python"
    say(f"installing the Python packages of {requirements.name} into .venv")
    if not have or not python.exists():
        shutil.rmtree(LAB / ".venv", ignore_errors=True)
        run([sys.executable, "-m", "venv", str(LAB / ".venv")])
    run(
        [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
            str(requirements),
        ]
    )
    for site in (LAB / ".venv" / "lib").glob("python3*/site-packages"):
        (site / "wallab.pth").write_text(f"{LAB}\n")
    kept = [line for line in have if line.split()[0] != requirements.name]
    stamp.write_text("\n".join([*kept, fingerprint]) + "\n")


_COMPILED = b"2"
"""Raised when the way of compiling changes, so that everything is compiled anew."""


def _program(folder: Path, name: str) -> Path:
    """Return where a program of the lab's own is, named by the sources it is built from."""
    digest = hashlib.sha256(_COMPILED)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and (file.suffix in {".c", ".h", ".build"}):
            digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return cache() / folder.name / digest.hexdigest()[:16] / name


def drive_program() -> Path:
    """Return where the simulated drive's program is."""
    return _program(DRIVE, "wal-drive")


def copy_program() -> Path:
    """Return where direct_cp is."""
    return _program(DIRECT_CP, "direct_cp")


def turns_library() -> Path:
    """Return where the emulator's library is (turns)."""
    return _program(TURNS, "turns.so")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let nobody else change the cache's programs and packages meanwhile."""
    with (cache() / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def have_program(folder: Path, program: Path) -> None:
    """Have the folder's program, compiled where it is missing; MachineError where that fails."""
    if program.exists():
        return
    try:
        cache().mkdir(parents=True, exist_ok=True)
        with alone():
            compile_program(folder, program)
    except (SetupError, OSError) as error:
        raise MachineError(f"{folder.name}: {error}") from None


def compile_program(folder: Path, program: Path) -> None:
    """Compile the folder's program, unless that was done for just these sources.

    The same compiler makes the same bytes of them wherever the folders are.
    """
    if program.exists():
        return
    say(f"compiling {program.name}")
    build = program.parent / "build"
    shutil.rmtree(program.parent, ignore_errors=True)
    # As Meson has it: in the build folder, from files of the other that it names from there.
    build.mkdir(parents=True)
    here, there = build.resolve(), folder.resolve()
    names = {os.path.relpath(there, here): folder.name, str(there): folder.name, str(here): "build"}
    maps = [f"-ffile-prefix-map={name}={other}" for name, other in names.items()]
    # Warnings of a compiler that the tests have not seen are no reason to stop a user.
    run(["meson", "setup", "-Dwerror=false", f"-Dc_args={maps}", str(here), str(there)])
    run(["meson", "compile", "-C", str(build)])
    shutil.copy2(build / program.name, program)


def main() -> int:
    """Set the machine up for the groups of work named on the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/setup",
        description="Install what the lab needs on this machine; asks nothing.",
        epilog="The other scripts run this when needed. Example: scripts/setup build drive test",
    )
    parser.add_argument(
        "group",
        nargs="*",
        metavar="|".join(name for name in PACKAGES if name != "base"),
        help="what to set up for; everything if none is named",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing if nothing is missing")
    arguments = parser.parse_args()
    groups: list[str] = arguments.group
    if unknown := set(groups) - set(PACKAGES):
        known = ", ".join(name for name in PACKAGES if name != "base")
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {known}")
    if not groups and not arguments.quiet:
        groups = list(PACKAGES)
    if sys.version_info < (3, 11):  # noqa: UP036 - it runs before anything is checked
        say(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
        return 3
    try:
        cache().mkdir(parents=True, exist_ok=True)
        with alone():
            install_packages(["base", *groups])
            create_users()
            create_environment(LAB / "requirements.txt")
            if "fleet" in groups:
                create_environment(LAB / "requirements-fleet.txt")
            if "test" in groups:
                create_environment(LAB / "requirements-test.txt")
            if "drive" in groups:
                compile_program(DRIVE, drive_program())
                compile_program(DIRECT_CP, copy_program())
            if "virtual" in groups:
                compile_program(TURNS, turns_library())
                run([str(LAB / ".venv" / "bin" / "python"), "-m", "wallab.virtual.ready"])
    except (SetupError, OSError) as error:
        say(str(error))
        return 3
    except KeyboardInterrupt:
        say("interrupted; what is done already stays, the next start does the rest")
        return 130
    if not arguments.quiet:
        say("this machine is ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
