"""scripts/test: formatters, linters, type checkers and all tests."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wallab import paths
from wallab.command import mesonlog
from wallab.duration import duration
from wallab.progress import say

SANITIZERS = [
    "-Db_sanitize=address,undefined",
    "-Db_lundef=false",
    "-Dc_args=-fno-sanitize-recover=all",
]
"""Options of meson: a program ends at the first error that the compiler's sanitizers see."""

SANITIZED_TESTS = ["tests/test_drive_nbd.py", "tests/test_direct_cp.py"]
"""Tests of pytest's that build what they test with them when told --sanitized."""


def checks() -> list[tuple[str, list[str]]]:
    """Return the checks by name."""
    bin_folder = paths.LAB / ".venv" / "bin"
    shell = [
        str(file)
        for file in sorted((paths.LAB / "scripts").iterdir())
        if file.read_bytes().startswith(b"#!/bin/sh")
    ]
    tests = paths.LAB / "tests"
    perl = [str(file) for file in sorted([*tests.glob("perl/*.pm"), *tests.glob("t/*.pl")])]
    # As PostgreSQL has its own Perl. perltidy prints what it would make of one file.
    layout = (
        f"for file; do perltidy --profile={tests}/perl/perltidyrc --nobackup-and-modify-in-place "
        '--assert-tidy --standard-error-output --standard-output "$file" >/dev/null || exit; done'
    )
    c_layout = [str(bin_folder / "clang-format"), "--dry-run", "-Werror", *c_files()]
    return [
        ("formatter", [str(bin_folder / "ruff"), "format", "--check", "--quiet", "."]),
        ("linter", [str(bin_folder / "ruff"), "check", "--quiet", "."]),
        ("types", [str(bin_folder / "mypy")]),
        ("imports", [str(bin_folder / "lint-imports"), "--no-cache"]),
        ("C layout", c_layout),
        ("container", [str(bin_folder / "hadolint"), "--no-color", "Dockerfile"]),
        ("shell", ["shellcheck", *shell, ".ci/run"]),
        ("perl layout", ["sh", "-c", layout, "sh", *perl]),
        ("perl", ["perlcritic", "--quiet", "--profile", f"{tests}/perl/perlcriticrc", *perl]),
    ]


def c_files() -> list[str]:
    """Return the lab's own C files."""
    folders = (paths.DRIVE, paths.DIRECT_CP, paths.TURNS, paths.LAB / "tests")
    return [str(file) for folder in folders for file in sorted(folder.rglob("*.[ch]"))]


def passed(name: str, *commands: list[str]) -> bool:
    """Run a check's commands until one fails, whose output is shown; say how it went."""
    begun = time.monotonic()
    for command in commands:
        done = subprocess.run(
            command, cwd=paths.LAB, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            sys.stderr.write(done.stdout)
            say(f"{name}: FAILED in {duration(time.monotonic() - begun)}")
            return False
    say(f"{name}: passed in {duration(time.monotonic() - begun)}")
    return True


def sanitized_drive_passed(name: str) -> bool:
    """Run the drive's own tests with the sanitizers."""
    with tempfile.TemporaryDirectory(prefix="wallab-sanitized-") as folder:
        if not passed(
            name,
            ["meson", "setup", *SANITIZERS, folder, str(paths.DRIVE)],
            ["meson", "compile", "-C", folder],
            ["meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs"],
        ):
            return False
        say(f"{name}: {mesonlog.summary(mesonlog.read(Path(folder)))}")
    return True


def sanitized_plugin_passed(name: str) -> bool:
    """Run the tests of nbdkit's plugin and of direct_cp with the sanitizers; say what they skip."""
    begun = time.monotonic()
    command = [_pytest(), "--sanitized", "-q", "-rs", *SANITIZED_TESTS]
    done = subprocess.run(
        command, cwd=paths.LAB, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    took = duration(time.monotonic() - begun)
    lines = done.stdout.splitlines() or ["pytest printed nothing"]
    if done.returncode:
        sys.stderr.write(done.stdout)
        say(f"{name}: FAILED in {took}")
        return False
    say(f"{name}: passed in {took}: {lines[-1]}")
    for line in lines:
        if line.startswith("SKIPPED"):
            say(f"{name}: {line}")
    return True


def _pytest() -> str:
    return str(paths.LAB / ".venv" / "bin" / "pytest")


def main() -> int:
    """Run everything; arguments go to pytest, and then only pytest runs."""
    arguments = sys.argv[1:]
    failed: list[str] = []
    if not arguments:
        failed += [name for name, command in checks() if not passed(name, command)]
        if not sanitized_drive_passed("drive with sanitizers"):
            failed.append("drive with sanitizers")
        if not sanitized_plugin_passed("plugin and direct_cp with sanitizers"):
            failed.append("plugin and direct_cp with sanitizers")
    code = subprocess.run([_pytest(), *arguments], cwd=paths.LAB).returncode
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed or code else 0


if __name__ == "__main__":
    sys.exit(main())
