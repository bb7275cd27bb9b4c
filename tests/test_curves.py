"""Plots with a scale of numbers below: along the columns, and over time."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from wallab import paths
from wallab.errors import LabError
from wallab.record import matrix, reference
from wallab.record.experiment import Cell
from wallab.record.samples import Sample
from wallab.record.timeseries import TimeSeries
from wallab.results import summary, table, tabulation
from wallab.results.tabulation import Results

SVG = "{http://www.w3.org/2000/svg}"
EXAMPLE = paths.RESULTS / "example-quick"

Change = Callable[[Sample, int], Sample]


@pytest.fixture(scope="module")
def example() -> Results:
    """The example run, whose samples stand in for those of other experiments."""
    return tabulation.results_of(EXAMPLE)


def results(example: Results, name: str, preset_name: str, change: Change) -> Results:
    """Make up a run of an experiment: `change` gives a sample of a cell its figures."""
    experiment, preset = matrix.choose(matrix.read(), name, preset_name)
    cells = matrix.cells(experiment, preset)
    plan = msgspec.structs.replace(
        example.plan, experiment=experiment, preset=preset, cells=tuple(cells)
    )
    bare = msgspec.structs.replace(example.samples[0], drive={}, wal=None, open_flags={})
    samples = [
        change(msgspec.structs.replace(bare, cell=cell, round=number), number)
        for number in (1, 2, 3)
        for cell in cells
    ]
    published = reference.load(experiment.reference) if experiment.reference else None
    summaries = summary.summarize(plan, samples, published)
    return Results(plan, samples, table.lay_out(plan, summaries, published))


def rate(sample: Sample, tps: float) -> Sample:
    """The sample with another rate."""
    assert sample.figures
    return msgspec.structs.replace(sample, figures=msgspec.structs.replace(sample.figures, tps=tps))


def lines(drawing: str) -> dict[str, list[list[tuple[float, float]]]]:
    """Return role -> the points of its lines."""
    by_role: dict[str, list[list[tuple[float, float]]]] = {}
    for element in ElementTree.fromstring(drawing).iter(f"{SVG}polyline"):  # noqa: S314
        points = [
            tuple(map(float, point.split(","))) for point in element.get("points", "").split()
        ]
        by_role.setdefault(element.get("class", ""), []).append(points)  # type: ignore[arg-type]
    return by_role


def words(drawing: str) -> list[str]:
    """Return what is written in a drawing."""
    return [element.text or "" for element in ElementTree.fromstring(drawing).iter(f"{SVG}text")]  # noqa: S314


def test_scaling_is_relative_to_one_cpu(example: Results) -> None:
    def scaled(sample: Sample, number: int) -> Sample:
        faster = {"15": 0.5, "17": 0.75, "18": 1.0}[sample.cell["source"]]
        return rate(sample, 1000.0 * (1 + faster * (int(sample.cell["cpus"]) - 1)) + number)

    run = results(example, "smp", "quick", scaled)
    drawing = tabulation.render(run, "svg-curves")
    # A panel for each workload and scale, and in each a line for each source.
    assert len(lines(drawing)["stroke-accent"]) == 4
    for roles in ("stroke-accent", "stroke-mark", "stroke-transferred"):
        assert len(lines(drawing)[roles]) == 4
    steep, flat = lines(drawing)["stroke-transferred"][0], lines(drawing)["stroke-accent"][0]
    # Up is less in a drawing: with 16 CPUs 18 is 16 times as fast, and 15 only 8.5 times.
    assert (steep[0][1] - steep[4][1]) / (flat[0][1] - flat[4][1]) == pytest.approx(2, abs=0.05)
    assert words(drawing).count("18") == 4
    assert "workload select-only, scale 60" in words(drawing)
    assert "TPS, relative to the first column of the row; 95% intervals" in words(drawing)


def test_published_figures_are_drawn_beside(example: Results) -> None:
    def scanned(sample: Sample, number: int) -> Sample:
        slow = 9000.0 if sample.cell["read_ahead"] == "0" else 1000.0
        return msgspec.structs.replace(sample, values={"scan_ms": slow + number})

    run = results(example, "read-ahead", "smoke", scanned)
    drawing = tabulation.render(run, "svg-curves")
    (published,) = lines(drawing)["stroke-muted"]
    assert len(published) == 4
    assert "November 2013" in words(drawing)
    assert 'id="curves"' in tabulation.render(run, "html")


def test_ideal_is_drawn_once(example: Results) -> None:
    def carried(sample: Sample, number: int) -> Sample:
        ideal = 100.0 * int(sample.cell["warehouses"])
        values = {"tpm": ideal * 0.9 - number, "tpm_ideal": ideal}
        return msgspec.structs.replace(sample, values=values)

    run = results(example, "archive", "quick", carried)
    drawing = tabulation.render(run, "svg-curves")
    assert words(drawing).count("ideal") == 1
    assert len(lines(drawing)["stroke-muted"]) == 1
    page = tabulation.render(run, "text")
    # The source's own table, whose columns are others.
    assert "direct I/O (direct_cp), by warehouses" in page
    assert "| 0.03 | 0.05 |  0.2 | 0.81 | 2.46 | 8.28" in page
    assert "| 98.1 |" in tabulation.render(run, "markdown")
    assert "96.3" in tabulation.render(run, "html")


def full(cell: Cell) -> float:
    """When the cache of a made-up cell is full, in seconds; later than the sample without."""
    return 3.0 if cell["profile"] == "raid-bbwc" and cell["barriers"] == "on" else 99.0


def filling(sample: Sample, number: int) -> Sample:
    """A sample in which the drive's cache fills."""
    seconds = tuple(float(second) for second in range(11))
    dirty = tuple(min(1000.0, 1000.0 * second / full(sample.cell)) for second in seconds)
    series = {
        "drive_cache_mb": TimeSeries(seconds, dirty, 1000.0),
        "rate": TimeSeries(seconds[1:], tuple(500.0 + number for _ in seconds[1:])),
    }
    ratio = 0.5 if sample.cell["barriers"] == "on" else 1.0
    return msgspec.structs.replace(rate(sample, 500.0 * ratio), series=series)


def test_figures_over_time_are_where_the_table_has_the_cells(example: Results) -> None:
    run = results(example, "file-systems", "quick", filling)
    drawing = tabulation.render(run, "svg-time")
    cells = len(run.plan.cells)
    assert len(lines(drawing)["stroke-accent"]) == len(lines(drawing)["stroke-mark"]) == 3 * cells
    barred = sum(full(cell) < 10 for cell in run.plan.cells)
    assert 0 < barred < cells
    assert words(drawing).count("full after 3.0 s") == barred
    page = tabulation.render(run, "text")
    assert "drive's cache full after, s" in page
    assert "3.0" in page
    assert 'id="time"' in tabulation.render(run, "html")


def test_published_ratio_without_figures(example: Results) -> None:
    run = results(example, "file-systems", "quick", filling)
    ratios = {
        cell.reference_relative
        for row in run.table.rows
        for cell in row.cells
        if cell and row.head[:2] == ("tpcb-like", "raid-bbwc") and cell.cell["barriers"] == "on"
    }
    assert ratios == {0.4}
    assert all(c.reference is None for row in run.table.rows for c in row.cells if c)
    assert "2011, at worst" in tabulation.render(run, "text")


def test_nothing_to_draw_is_said(example: Results, tmp_path: Path) -> None:
    for kind in ("svg-curves", "svg-time"):
        with pytest.raises(LabError, match=f"nothing to draw as {kind}"):
            tabulation.render(example, kind)
    for name in ("manifest.json", "samples.jsonl"):
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())
    tabulation.write_files(tmp_path)
    assert (tmp_path / "bars.svg").exists()
    assert not (tmp_path / "curves.svg").exists()
    assert not (tmp_path / "time.svg").exists()


def test_published_table_of_uneven_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(
        'title = "t"\nunit = "u"\n[[table]]\ntitle = "x"\ncolumns = ["1", "2"]\n'
        "[table.lines]\nideal = [1, 2]\nreal = [1]\n"
    )
    monkeypatch.setattr(reference, "reference_file", lambda name: file)
    with pytest.raises(LabError, match="table 1, real: expected 2 figures"):
        reference.load("odd")
