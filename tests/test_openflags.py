"""How files of a server are found open, with and without the right to look."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from wallab.bench.openflags import flag_names, open_flags
from wallab.machine import process

SEGMENT = "000000010000000000000001"


@pytest.fixture
def postmaster(tmp_path: Path) -> Iterator[int]:
    """A process of the server's user, whose one child can write a segment with O_SYNC."""
    opened = os.open(tmp_path / SEGMENT, os.O_CREAT | os.O_WRONLY | os.O_SYNC)
    try:
        parent = process.spawn(["sh", "-c", "sleep 600 & wait"], as_server=True, stdout=opened)
    finally:
        os.close(opened)
    try:
        deadline = time.monotonic() + 60
        while not any(child.name() == "sleep" for child in psutil.Process(parent.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield parent.pid
    finally:
        process.end_group(parent)


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (os.O_RDWR, "none"),
        (os.O_RDWR | os.O_DSYNC, "O_DSYNC"),
        (os.O_RDWR | os.O_SYNC, "O_SYNC"),
        (os.O_RDWR | os.O_DIRECT, "O_DIRECT"),
        (os.O_RDWR | os.O_DIRECT | os.O_SYNC, "O_DIRECT|O_SYNC"),
    ],
)
def test_names(flags: int, names: str) -> None:
    assert flag_names(flags) == names


def test_segments_of_that_folder_only(postmaster: int, tmp_path: Path) -> None:
    assert open_flags(postmaster, tmp_path) == {"O_SYNC": 1}
    assert open_flags(postmaster, tmp_path / "other") == {}


def test_no_such_process(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert open_flags(gone.pid, tmp_path) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run a server as another user")
def test_without_the_right_to_look_at_others(postmaster: int, tmp_path: Path) -> None:
    (child,) = psutil.Process(postmaster).children()
    program = f"""
import os
from pathlib import Path
from wallab.bench.openflags import open_flags
try:
    os.readlink("/proc/{child.pid}/fd/1")
except PermissionError:
    print(open_flags({postmaster}, Path({str(tmp_path)!r})))
"""
    drop = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    result = subprocess.run(
        [*drop, sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert result.stdout == "{'O_SYNC': 1}\n", result.stderr
