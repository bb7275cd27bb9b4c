"""Figures over time: looked at while a sample is measured, and known by the gauges' names."""

from pathlib import Path
from typing import Any

import pytest

from wallab import paths
from wallab.bench import gauges
from wallab.bench.timeline import Timeline
from wallab.errors import LabError
from wallab.record import matrix
from wallab.record.drivereading import DriveReading
from wallab.record.gauges import GAUGES
from wallab.record.timeseries import TimeSeries


class MockDrive:
    """A drive whose cache fills by 100 MB a look."""

    mount_point = Path("/nonexistent")

    def __init__(self) -> None:
        self.dirty = 0

    def reading(self) -> DriveReading:
        self.dirty += 100_000_000
        return DriveReading({"dirty_bytes": self.dirty}, {})

    def cache_bytes(self) -> int:
        return 300_000_000


class MockStage:
    """A stage that has one drive, and no limit of memory."""

    def __init__(self) -> None:
        self.drives = {"data": MockDrive()}
        self.group = None
        self.archive = Path("/nonexistent")


def test_looks_become_series() -> None:
    stage: Any = MockStage()
    seen = Timeline(stage, ("rate", "drive_cache_mb", "page_cache_mb"))
    seen.look()
    seen.look()
    by_name = seen.series()
    # The rate is the workload's to tell, and there is no group whose page cache could be read.
    assert list(by_name) == ["drive_cache_mb"]
    series = by_name["drive_cache_mb"]
    assert series.figures == (100.0, 200.0, 300.0)
    assert series.limit == 300
    assert list(series.seconds) == sorted(series.seconds)
    assert series.full_after == series.seconds[2]


def test_what_has_no_limit_is_never_full() -> None:
    assert TimeSeries((0.0, 1.0), (5.0, 9.0)).full_after is None
    assert TimeSeries((0.0, 1.0), (5.0, 9.0), 10.0).full_after is None
    assert TimeSeries((0.0, 1.0), (5.0, 9.95), 10.0).full_after == 1.0


def test_a_drive_that_does_not_tell_has_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gauges.READ, "drive_cache_mb", lambda stage: None)
    stage: Any = MockStage()
    assert Timeline(stage, ("drive_cache_mb",)).series() == {}


def test_unknown_gauge_is_named(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    text = paths.MATRIX.read_text()
    file.write_text(text.replace('"drive_cache_mb"]', '"drive_cash_mb"]'))
    with pytest.raises(LabError, match=r"file-systems\.series: unknown “drive_cash_mb”; expected"):
        matrix.read(file)
    assert all(gauge.unit for gauge in GAUGES.values())
    assert gauges.READ.keys() <= GAUGES.keys()
    assert gauges.LIMIT.keys() <= gauges.READ.keys()
