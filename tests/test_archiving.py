"""The archive command is a shell's, so no path that somebody named may be read by it."""

import re
import subprocess
from pathlib import Path

import pytest

from wallab.bench.realbed import archive_settings

HOSTILE = (
    "plain",
    "a b",
    "$(touch pwned)",
    "`touch pwned`",
    'x"; touch pwned; "',
    "%p%f%%",
    "o'clock",
)


def as_the_server_does(command: str, file: str, name: str) -> str:
    """Put what is archived for %p and %f, as PostgreSQL's archiver does."""
    words = {"%p": file, "%f": name, "%%": "%"}
    return re.sub(r"%[pf%]", lambda escape: words[escape[0]], command)


@pytest.mark.parametrize("directory", HOSTILE)
@pytest.mark.parametrize("archive", ["cp", "direct_cp"])
def test_no_directory_is_read_by_the_shell(archive: str, directory: str, tmp_path: Path) -> None:
    drive = tmp_path / directory
    data = drive / "data" / "10"
    (data / "pg_wal").mkdir(parents=True)
    (drive / "archive").mkdir()
    (data / "pg_wal" / "000000010000000000000001").write_text("WAL")
    program = drive / "direct_cp"
    program.write_text('#!/bin/sh\nexec cp "$1" "$2"\n')
    program.chmod(0o755)
    settings = archive_settings(archive, program)
    assert settings["archive_mode"] == "on"
    name = "000000010000000000000001"
    command = as_the_server_does(settings["archive_command"], f"pg_wal/{name}", name)
    subprocess.run(["sh", "-c", command], cwd=data, check=True)
    assert (drive / "archive" / name).read_text() == "WAL"
    assert not list(tmp_path.rglob("pwned"))


def test_no_archive_is_no_setting() -> None:
    assert archive_settings(None, Path("/direct_cp")) == {}
