"""scripts/test: formatters, linters, type checkers and all tests."""

import subprocess
import sys
import time

from wallab import paths
from wallab.duration import duration
from wallab.progress import say


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
    return [
        ("formatter", [str(bin_folder / "ruff"), "format", "--check", "--quiet", "."]),
        ("linter", [str(bin_folder / "ruff"), "check", "--quiet", "."]),
        ("types", [str(bin_folder / "mypy")]),
        ("container", [str(bin_folder / "hadolint"), "--no-color", "Dockerfile"]),
        ("shell", ["shellcheck", *shell, ".ci/run"]),
        ("perl layout", ["sh", "-c", layout, "sh", *perl]),
        ("perl", ["perlcritic", "--quiet", "--profile", f"{tests}/perl/perlcriticrc", *perl]),
    ]


def main() -> int:
    """Run everything; arguments go to pytest, and then only pytest runs."""
    arguments = sys.argv[1:]
    failed: list[str] = []
    if not arguments:
        for name, command in checks():
            begun = time.monotonic()
            code = subprocess.run(command, cwd=paths.LAB, stdout=sys.stderr).returncode
            say(
                f"{name}: {'passed' if code == 0 else 'FAILED'} in "
                f"{duration(time.monotonic() - begun)}"
            )
            if code:
                failed.append(name)
    pytest = [str(paths.LAB / ".venv" / "bin" / "pytest"), *arguments]
    code = subprocess.run(pytest, cwd=paths.LAB).returncode
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed or code else 0


if __name__ == "__main__":
    sys.exit(main())
