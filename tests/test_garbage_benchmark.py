"""benchmarks/garbage.py: a little of it finds nothing, and it does find what is there."""

import os
import signal
import time
from pathlib import Path

import pytest

from benchmarks import garbage
from benchmarks.garbage import Reader
from wallab.errors import LabError
from wallab.progress import Work

COUNT = 1500


@pytest.fixture
def work() -> Work:
    """A bar that is not shown."""
    return Work("garbage")


def test_nothing_is_found(tmp_path: Path, work: Work) -> None:
    outcomes, faults = garbage.measure(COUNT, 16, [], tmp_path / "kept", work)
    assert faults == []
    assert not (tmp_path / "kept").exists()
    assert outcomes.keys() == garbage.readers().keys()
    # Damage that leaves nothing valid, or everything, would test no reader.
    together = garbage.table(outcomes).splitlines()[-1].split()
    assert int(together[2].replace(",", "")) > COUNT // 10
    assert int(together[3].replace(",", "")) > COUNT // 10


def test_valid_files_are_read(tmp_path: Path) -> None:
    for kind, reader in garbage.readers().items():
        for number, content in enumerate(reader.seeds):
            file = tmp_path / f"{kind} {number}" / reader.place
            file.parent.mkdir(parents=True)
            file.write_bytes(content)
            reader.read(file)


def breaking(file: Path) -> object:
    """A reader with every kind of fault."""
    content = file.read_bytes()
    if content == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if content == b"hang":
        time.sleep(60)
    if content == b"raise":
        raise ValueError("a fault of 0x12")
    if content == b"wordless":
        raise LabError(" ")
    raise LabError("refused")


def test_faults_are_counted_and_kept(
    tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [b"raise", b"kill", b"fine", b"hang", b"wordless", b"kill"]
    reader = Reader([b""], "x", breaking)
    monkeypatch.setattr(garbage, "readers", lambda: {"odd kind": reader})
    monkeypatch.setattr(garbage, "garbage", lambda kind, reader, seed, number: inputs[number])
    monkeypatch.setattr(garbage, "PATIENCE", 1)
    outcomes, faults = garbage.measure(len(inputs), 1, [], tmp_path / "kept", work)
    assert outcomes["odd kind"] == {"refused": 1, "fault": 5}
    assert [fault.number for fault in faults] == [0, 1, 3, 4, 5]
    assert faults[0].why.startswith("ValueError: a fault of … (test_garbage_benchmark.py, line ")
    assert faults[1].why == faults[4].why == "the reader died (exit code -9)"
    assert "took longer than" in faults[2].why
    assert faults[3].why == "LabError without a word"
    assert (tmp_path / "kept" / "odd-kind-3").read_bytes() == b"hang"


def test_same_seed_same_garbage() -> None:
    reader = garbage.readers()["mail"]
    inputs = [garbage.garbage("mail", reader, 1, number) for number in range(50)]
    assert inputs == [garbage.garbage("mail", reader, 1, number) for number in range(50)]
    assert inputs != [garbage.garbage("mail", reader, 2, number) for number in range(50)]
