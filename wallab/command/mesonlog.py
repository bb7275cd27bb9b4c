"""What `meson test` logged of each test; its own exit code is 0 when some were skipped."""

from pathlib import Path

import msgspec

from wallab.errors import LabError


class MesonTest(msgspec.Struct, frozen=True):
    """One test: its name, what it printed, and meson's word for how it ended: OK, FAIL, SKIP …"""

    name: str
    result: str
    stdout: str = ""

    @property
    def reason(self) -> str:
        """Why it was skipped: the last line it printed, after “skipped: ”."""
        lines = self.stdout.strip().splitlines() or ["it did not say why"]
        return lines[-1].removeprefix("skipped: ")


def read(build: Path) -> list[MesonTest]:
    """Return the tests of the last `meson test` in a build folder; LabError if it left no log."""
    path = build / "meson-logs" / "testlog.json"
    try:
        lines = path.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=MesonTest) for line in lines]
    except (OSError, msgspec.MsgspecError) as error:
        raise LabError(f"{path}: no log of meson's tests ({error}); run meson test there") from None


def skipped(tests: list[MesonTest]) -> list[MesonTest]:
    """Return those that meson skipped."""
    return [test for test in tests if test.result == "SKIP"]


def summary(tests: list[MesonTest]) -> str:
    """Count the tests, and name those that were skipped, with the reason each gave."""
    skips = skipped(tests)
    named = "; ".join(f"{test.name} ({test.reason})" for test in skips)
    return f"{len(tests)} tests, {len(skips)} skipped{': ' if skips else ''}{named}"
