"""Raw samples survive what can happen to a file."""

from pathlib import Path

import pytest

from wallab.errors import LabError
from wallab.record.measured import Measured
from wallab.record.samples import Sample, SampleFile


def sample(number: int) -> Sample:
    """A sample."""
    return Sample(
        cell={"variant": "both", "write_cache": "off", "sync": "fsync"},
        round=number,
        position=1,
        started="2026-01-01T00:00:00Z",
        state="measured",
        figures=Measured(100.5, 1000, 0, 1.5, 20.0),
    )


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    file = SampleFile(tmp_path / "samples.jsonl")
    assert file.read() == []
    file.append(sample(1))
    file.append(sample(2))
    assert file.read() == [sample(1), sample(2)]


def test_last_line_cut_short_is_set_aside(tmp_path: Path) -> None:
    file = SampleFile(tmp_path / "samples.jsonl")
    file.append(sample(1))
    whole = file.path.read_bytes()
    file.append(sample(2))
    cut = file.path.read_bytes()[:-20]
    file.path.write_bytes(cut)
    assert file.read() == [sample(1)]
    assert file.set_aside_damaged_end()
    assert file.path.read_bytes() == whole
    assert cut.removeprefix(whole) in (tmp_path / "samples.damaged").read_bytes()
    file.append(sample(2))
    assert file.read() == [sample(1), sample(2)]
    assert not file.set_aside_damaged_end()


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    file = SampleFile(tmp_path / "samples.jsonl")
    file.append(sample(1))
    file.path.write_bytes(b'{"cell": 1}\n' + file.path.read_bytes())
    with pytest.raises(LabError, match="line 1: not a sample"):
        file.read()
