"""What a table shows of a cell follows from its samples."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wallab import paths
from wallab.bench import provenance
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.record import matrix, ownvariant, reference, series, values
from wallab.record.build import Build
from wallab.record.drivereading import DriveReading
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.record.measured import Course, Latency, Measured, ScheduleLag
from wallab.record.openflags import METHODS
from wallab.record.ownvariant import OwnVariant
from wallab.record.samples import CpuSeconds, Sample
from wallab.record.walcounters import WalCounters
from wallab.record.writecache import as_read_back
from wallab.results import summary, table
from wallab.results.export import csvfile, markdown, text


@pytest.fixture(scope="module")
def plan() -> Manifest:
    """The manifest of a quick run that was made up."""
    experiment, preset = matrix.choose(matrix.read(), "thread", "quick")
    direct = ("fdatasync", "fsync", "open_sync", "open_datasync", "fsync_direct", "open_direct",
              "fdatasync_direct", "open_datasync_direct")  # fmt: skip
    build = Build("v", "18.6", "0", "tarball", (), "meson", (), "cc", {}, "k", 1.0, "2026")
    return Manifest(
        name="thread", preset_name="quick", started="2026-01-01T00:00:00Z", seed=1, lab={},
        machine=provenance.machine(), experiment=experiment, preset=preset,
        cells=tuple(matrix.cells(experiment, preset)), builds={"both": build},
        methods={"direct-io": direct, "both": direct, "gather-write": direct[:4]}, drives={},
    )  # fmt: skip


def reading(late: int) -> DriveReading:
    """What a drive counted that was late by so many ns."""
    return DriveReading({"writes": 20, "flushes": 5}, {"p99_ns": late})


def sample(cell: Cell, number: int, tps: float, **changes: Any) -> Sample:
    """A sample of the cell; changes replace its fields."""
    plain = Sample(
        cell=cell, round=number, position=1, started="", state="measured",
        figures=Measured(tps, round(tps), 0, 1.0, 1.0), wal=WalCounters(10, 81920, 5, 70000, 3),
        drive={"wal": reading(1000)},
        write_cache={"wal": as_read_back("off"), "data": as_read_back("on")},
        open_flags={"none": 3},
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def at(variant: str, sync: str, write_cache: str = "off") -> Cell:
    """A cell of the thread."""
    return {"variant": variant, "write_cache": write_cache, "sync": sync}


def find(summaries: list[summary.Summary], cell: Cell) -> summary.Summary:
    """The summary of the cell."""
    return next(candidate for candidate in summaries if candidate.cell == cell)


def test_states_are_told_apart(plan: Manifest) -> None:
    broken = sample(at("both", "fsync"), 1, 0, state="failed", figures=None, error="no")
    summaries = summary.summarize(plan, [sample(at("both", "fdatasync"), 1, 50), broken], None)
    assert find(summaries, at("both", "fdatasync")).state == "measured"
    assert find(summaries, at("both", "fsync")).state == "failed"
    assert find(summaries, at("both", "open_sync")).state == "not run"
    assert find(summaries, at("gather-write", "open_direct")).state == "N/A"


def test_memory_that_was_not_limited_as_asked_is_told(plan: Manifest) -> None:
    limited = msgspec.structs.replace(
        plan, experiment=msgspec.structs.replace(plan.experiment, memory_mb=1024)
    )
    for megabytes, warned in ((1024.0, False), (2048.0, True)):
        measurement = sample(at("both", "fdatasync"), 1, 50, values={"memory_limit_mb": megabytes})
        result = find(summary.summarize(limited, [measurement], None), at("both", "fdatasync"))
        assert any("memory was not limited" in warning for warning in result.warnings) == warned


def test_ratios_to_the_row(plan: Manifest) -> None:
    samples = [
        sample(at("both", "fsync=false"), 1, 200),
        sample(at("both", "open_direct"), 1, 50, open_flags={"O_DIRECT|O_SYNC": 9}),
    ]
    result = find(
        summary.summarize(plan, samples, reference.load("thread")), at("both", "open_direct")
    )
    assert result.relative == 0.25
    assert result.reference == 145.2
    assert result.reference_relative is not None
    assert math.isclose(result.reference_relative, 145.2 / 131.5)
    assert result.warnings == ()


def test_deviation_is_one_figure(plan: Manifest) -> None:
    published = reference.load("thread")
    base, theirs = at("both", "fsync=false"), 131.5
    # Half of the published ratio in one cell, twice in the other: a factor of 2.
    samples = [
        sample(base, 1, 200),
        sample(at("both", "fdatasync"), 1, 200 * 115.5 / theirs / 2),
        sample(at("both", "open_sync"), 1, 200 * 114.4 / theirs * 2),
    ]
    laid_out = table.lay_out(plan, summary.summarize(plan, samples, published), published)
    assert laid_out.deviation is not None
    assert laid_out.deviation[0] == pytest.approx(2)
    assert "by a factor of 2.00, up or down (geometric mean over 2 cells)" in text.render(laid_out)
    assert "factor of 2.00" in markdown.render(laid_out)
    alone = table.lay_out(plan, summary.summarize(plan, samples[:1], published), published)
    assert alone.deviation is None


def test_outliers_and_unsteady_cells_are_marked_and_count(plan: Manifest) -> None:
    cell = at("both", "fdatasync")

    def course(first: float, second: float) -> Measured:
        latency = Latency(1, 1, 1, 1, 1)
        return Measured(100.0, 300, 0, 1.0, 1.0, Course(latency, (100, 100), (first, second)))

    rates = [100.0, 101.0, 99.0, 100.5, 150.0]
    result = find(
        summary.summarize(plan, [sample(cell, n, r) for n, r in enumerate(rates, 1)], None), cell
    )
    assert result.tps is not None
    assert result.tps.mean == pytest.approx(110.1)
    assert any("round 5 lies apart: 150.0 TPS" in warning for warning in result.warnings)
    steady = [sample(cell, n, 100, figures=course(100, 101)) for n in range(1, 6)]
    assert find(summary.summarize(plan, steady, None), cell).warnings == ()
    sinking = [sample(cell, n, 100, figures=course(120, 80 + n)) for n in range(1, 6)]
    (warning,) = find(summary.summarize(plan, sinking, None), cell).warnings
    assert warning.startswith("not steady: the second half of a sample had 0.69 times")
    # No word on steadiness without enough rounds.
    assert find(summary.summarize(plan, sinking[:4], None), cell).warnings == ()


def test_evidence_is_summed_over_rounds(plan: Manifest) -> None:
    cell = at("both", "fsync")
    summaries = summary.summarize(plan, [sample(cell, 1, 100), sample(cell, 2, 300)], None)
    evidence = find(summaries, cell).evidence
    assert evidence is not None
    assert evidence.writes_per_transaction == 20 / 400
    assert evidence.bytes_per_write == 8192
    assert evidence.drive_writes_per_transaction == 40 / 400


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"open_flags": {"O_SYNC": 3}}, "without O_DIRECT"),
        ({"open_flags": {}}, "not proved"),
        ({"write_cache": {"wal": as_read_back("on"), "data": as_read_back("on")}}, "cache was not"),
        ({"drive": {"wal": reading(1_900_000)}}, "late: 1.90 ms"),
    ],
)
def test_what_was_not_as_asked_is_marked(
    plan: Manifest, changes: dict[str, Any], message: str
) -> None:
    cell = at("both", "open_direct")
    good = {"open_flags": {"O_DIRECT|O_SYNC": 3}}
    assert not find(summary.summarize(plan, [sample(cell, 1, 9, **good)], None), cell).warnings
    result = find(summary.summarize(plan, [sample(cell, 1, 9, **(good | changes))], None), cell)
    assert message in " ".join(result.warnings)
    assert text.tps(result).endswith("!")


@pytest.mark.parametrize(
    ("variant", "method", "seen", "words"),
    [
        ("committed", "open_sync", {"O_SYNC": 3}, "without O_DIRECT"),
        ("committed", "open_datasync", {"O_DIRECT": 3}, "without O_DSYNC"),
        ("committed", "open_sync", {}, "so O_DIRECT|O_SYNC is not proved"),
        ("committed", "open_sync", {"O_DIRECT|O_SYNC": 3}, ""),
        ("committed", "fdatasync", {"none": 3}, ""),
        ("stock", "open_sync", {"O_SYNC": 3}, ""),
        ("stock", "open_sync", {"none": 3}, "without O_SYNC"),
        ("both", "open_direct", {"O_DIRECT|O_SYNC": 2, "O_DIRECT": 1}, "without O_SYNC"),
        ("both", "fdatasync_direct", {"O_DIRECT": 2}, ""),
        ("both", "fsync=false", {"none": 2}, ""),
    ],
)
def test_flags_are_those_of_method_and_variant(
    plan: Manifest, variant: str, method: str, seen: dict[str, int], words: str
) -> None:
    cell = at(variant, method)
    direct = series.direct_methods(series.read(), plan.experiment.axes["variant"])
    methods = dict.fromkeys(("stock", "both", "committed"), METHODS)
    known = msgspec.structs.replace(plan, direct=direct, methods=methods, cells=(cell,))
    (only,) = summary.summarize(known, [sample(cell, 1, 9, open_flags=seen)], None)
    assert (words in " ".join(only.warnings)) if words else only.warnings == ()


def test_own_variants_take_o_direct_as_what_they_stand_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    for name, on in (("mine", "committed"), ("further", "mine"), ("other", "stock")):
        folder = tmp_path / "variants" / name
        folder.mkdir(parents=True)
        jsonfile.save(folder / ownvariant.RECORD, OwnVariant(name, on, (), "2026"))
    variants = ("further", "other", "stock", "gone")
    assert series.direct_methods(series.read(), variants) == {
        "further": ("open_sync", "open_datasync")
    }


def test_unknown_method_of_a_variant_is_named(tmp_path: Path) -> None:
    file = tmp_path / "series.toml"
    file.write_text(
        '[variant.x]\ntitle = "x"\nabout = ""\npatches = []\ndirect = ["open_sink"]\n[series.18]\n'
    )
    with pytest.raises(LabError, match=r"x\.direct: unknown method “open_sink”; expected one of"):
        series.read(file)


def test_titles_are_those_of_the_run(plan: Manifest) -> None:
    """A title that is changed later changes no table of before."""
    titles = {"variant": {"both": "both of them"}, "sync": {"fsync": "F_SYNC"}}
    cell = at("both", "fsync")
    named = msgspec.structs.replace(plan, titles=titles, cells=(cell,))
    laid_out = table.lay_out(named, summary.summarize(named, [sample(cell, 1, 9)], None), None)
    for render in (text.render, markdown.render):
        assert "both of them" in render(laid_out)
    plain = msgspec.structs.replace(laid_out, titles={})
    assert not any("both of them" in render(plain) for render in (text.render, markdown.render))


def test_titles_are_kept_for_what_is_written_otherwise() -> None:
    axes = {"variant": ("stock", "direct-io"), "sync": ("fsync",)}
    assert provenance.titles(axes) == {"variant": {"direct-io": "direct io"}}


@pytest.fixture(scope="module")
def laid_out(plan: Manifest) -> table.Table:
    """A table with a few figures."""
    samples = [sample(at("both", "fsync=false"), number, 1000 + number) for number in (1, 2, 3)] + [
        sample(at("gather-write", "open_sync"), number, 100 + number) for number in (1, 2, 3)
    ]
    published = reference.load("thread")
    return table.lay_out(plan, summary.summarize(plan, samples, published), published)


def test_text_has_the_threads_layout(laid_out: table.Table) -> None:
    lines = text.render(laid_out).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("patch "))
    assert "writeback cache" in lines[head]
    assert [part.strip() for part in lines[head].split("|")][2:5] == ["false", "sync", "sync"]
    both = next(line for line in lines if line.startswith("both"))
    assert "1002.0" in both
    gathered = next(line for line in lines if line.startswith("gather-write"))
    assert "102.0" in gathered
    assert "(N/A)" in gathered
    assert "105.4" in "\n".join(lines)  # the thread's own figure


def test_rendering_twice_gives_the_same(laid_out: table.Table) -> None:
    for render in (text.render, markdown.render, csvfile.render):
        assert render(laid_out) == render(laid_out)


def test_markdown_escapes(laid_out: table.Table) -> None:
    evil = msgspec.structs.replace(laid_out, title="a | b <script>")
    assert "a \\| b \\<script\\>" in markdown.render(evil)


def test_csv_has_a_line_for_each_cell(laid_out: table.Table, plan: Manifest) -> None:
    assert len(csvfile.render(laid_out).splitlines()) == 1 + len(plan.cells)


def test_units_are_those_of_the_drive_that_has_the_wal(plan: Manifest) -> None:
    cell = at("both", "fsync")
    apart = msgspec.structs.replace(plan, drives={"wal": {"units": "4"}, "data": {"units": "10"}})
    alone = msgspec.structs.replace(plan.experiment, drive={"data": plan.experiment.drive["data"]})
    together = msgspec.structs.replace(plan, experiment=alone, drives={"data": {"units": "10"}})
    for changed, units in ((apart, 4), (together, 10)):
        evidence = find(summary.summarize(changed, [sample(cell, 1, 100)], None), cell).evidence
        assert evidence is not None
        assert evidence.units == units


def test_another_value_is_shown_by_every_format(plan: Manifest) -> None:
    cell = at("both", "fdatasync")
    course = Course(Latency(1, 2, 3, 7.25, 9), (100,), (100.0, 100.0))
    samples = [
        sample(cell, n, 100, figures=Measured(100, 300, 0, 1.0, 1.0, course)) for n in (1, 2)
    ]
    latency = table.rearranged(plan, (), None, "p99")
    laid_out = table.lay_out(latency, summary.summarize(latency, samples, None), None)
    assert "7.25" in text.render(laid_out)
    page = markdown.render(laid_out)
    assert "| 7.25 ± 0.00 |" in page
    assert "latency p99, ms ± half of the 95% interval." in page
    assert "100.0" not in page
    head, *rows = csvfile.render(laid_out).splitlines()
    place = head.split(",").index("p99")
    assert head.split(",")[place + 1] == "p99_half_width_95"
    assert [row.split(",")[place : place + 2] for row in rows if "measured" in row] == [
        ["7.25", "0.0"]
    ]
    several = msgspec.structs.replace(
        plan, experiment=msgspec.structs.replace(plan.experiment, values=("tps", "p99"))
    )
    laid_out = table.lay_out(several, summary.summarize(several, samples, None), None)
    lines = markdown.render(laid_out).splitlines()
    (tps,) = (number for number, line in enumerate(lines) if "| TPS |" in line and "100.0" in line)
    assert "| latency p99, ms |" in lines[tps + 1]
    assert "| 7.25 ± 0.00 |" in lines[tps + 1]


@pytest.mark.parametrize(
    ("name", "rows", "column"),
    [
        ("smp", ("workload", "scale"), "source"),
        ("read-ahead", ("read_ahead",), "setting.io_method"),
        ("thread", (), "variant"),
    ],
)
def test_any_axis_makes_the_columns(
    plan: Manifest, name: str, rows: tuple[str, ...], column: str
) -> None:
    experiment, preset = matrix.choose(matrix.read(), name, "full")
    cells = tuple(matrix.cells(experiment, preset))
    its_own = msgspec.structs.replace(plan, experiment=experiment, preset=preset, cells=cells)
    changed = table.rearranged(its_own, rows, column, "server_cpu")
    measurement = sample(cells[0], 1, 50, cpu_seconds=CpuSeconds(0.5, 0.25))
    laid_out = table.lay_out(changed, summary.summarize(changed, [measurement], None), None)
    assert laid_out.columns == experiment.axes[column]
    assert laid_out.row_axes[: len(rows)] == rows
    assert sorted((*laid_out.row_axes, column)) == sorted(experiment.axes)
    assert sum(1 for row in laid_out.rows for cell in row.cells if cell) == len(cells)
    assert laid_out.rows[0].cells[0] is not None
    assert laid_out.rows[0].cells[0].values["server_cpu"].mean == pytest.approx(10)
    assert "10.000" in text.render(laid_out)


def paced(plan: Manifest, rate: str, think: str = "0") -> tuple[Manifest, Cell]:
    """The run of one cell at a fixed rate."""
    axes = {"rate": (rate,), "think": (think,), "sync": ("fdatasync",)}
    experiment = msgspec.structs.replace(
        plan.experiment, axes=axes, rows=("rate", "think"), reference=None, relative_to=None
    )
    cell = {axis: values[0] for axis, values in axes.items()}
    return msgspec.structs.replace(plan, experiment=experiment, cells=(cell,)), cell


@pytest.mark.parametrize(
    ("tps", "seconds", "kept"),
    # Of 100 a second for 2 s, 3 standard deviations are 21%; for 100 s they are 3%.
    [(80.0, 2, True), (75.0, 2, False), (97.5, 100, True), (96.0, 100, False), (104.0, 100, True)],
)
def test_a_cell_that_does_not_keep_up(plan: Manifest, tps: float, seconds: int, kept: bool) -> None:
    changed, cell = paced(plan, "100")
    figures = Measured(tps, round(tps * seconds), 0, 5.0, 1.0, lag=ScheduleLag(2.5, 40.0))
    samples = [sample(cell, 1, tps, figures=figures)]
    (result,) = summary.summarize(changed, samples, None)
    late = [warning for warning in result.warnings if "did not keep up" in warning]
    assert late == ([] if kept else [f"it did not keep up: {tps:.1f} of 100 transactions/s, so "
                                     "latency grows all the time"])  # fmt: skip


def test_schedule_lag_is_shown(plan: Manifest) -> None:
    changed, cell = paced(plan, "100", "20")
    figures = [Measured(100, 1000, 0, 5.0, 1.0, lag=ScheduleLag(ms, 40.0)) for ms in (2.0, 3.0)]
    samples = [sample(cell, round_, 100, figures=f) for round_, f in enumerate(figures, 1)]
    assert [values.of(s, "lag") for s in samples] == [2.0, 3.0]
    assert values.of(samples[0], "lag_max") == 40.0
    laid_out = table.lay_out(changed, summary.summarize(changed, samples, None), None)
    for render in (text.render, markdown.render):
        assert "began 2.50 ms late on average" in render(laid_out)
    assert "At a fixed rate latency counts from when" in text.render(laid_out)
    assert "no latency has it" in text.render(laid_out)
    changed, cell = paced(plan, "unlimited")
    without = table.lay_out(changed, summary.summarize(changed, [sample(cell, 1, 100)], None), None)
    assert "At a fixed rate" not in text.render(without)
    assert "rests" not in text.render(without)
