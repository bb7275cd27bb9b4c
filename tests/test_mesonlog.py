"""What meson's log says of skipped tests, as scripts/test counts them."""

import subprocess
from pathlib import Path

import pytest

from wallab.command import mesonlog
from wallab.errors import LabError

PROJECT = """
project('skipping')
sh = find_program('sh')
test('runs', sh, args: ['-c', 'echo fine'])
test('cannot', sh, args: ['-c', 'echo looking; echo skipped: not root; exit 77'])
test('silent', sh, args: ['-c', 'exit 77'])
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder whose tests have run; meson calls that a success."""
    (tmp_path / "meson.build").write_text(PROJECT)
    folder = tmp_path / "build"
    subprocess.run(["meson", "setup", folder, tmp_path], check=True, capture_output=True)
    subprocess.run(["meson", "test", "-C", folder], check=True, capture_output=True)
    return folder


def test_skips_are_counted_with_their_reasons(build: Path) -> None:
    tests = mesonlog.read(build)
    assert {test.name: test.reason for test in mesonlog.skipped(tests)} == {
        "cannot": "not root",
        "silent": "it did not say why",
    }
    count, _, named = mesonlog.summary(tests).partition(": ")
    assert count == "3 tests, 2 skipped"
    assert sorted(named.split("; ")) == ["cannot (not root)", "silent (it did not say why)"]


def test_nothing_is_named_where_nothing_was_skipped(build: Path) -> None:
    subprocess.run(["meson", "test", "-C", build, "runs"], check=True, capture_output=True)
    assert mesonlog.summary(mesonlog.read(build)) == "1 tests, 0 skipped"


def test_a_missing_or_broken_log_says_what_to_do(build: Path) -> None:
    log = build / "meson-logs" / "testlog.json"
    log.write_text("no JSON\n")
    with pytest.raises(LabError, match="run meson test there"):
        mesonlog.read(build)
    log.unlink()
    with pytest.raises(LabError, match="run meson test there"):
        mesonlog.read(build)
