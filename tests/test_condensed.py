"""Tables that people read lack the columns and rows that are (N/A) throughout, and say so."""

import json

import msgspec
import pytest

from wallab import paths
from wallab.record import matrix, reference
from wallab.record.manifest import Manifest, NotApplicable
from wallab.record.samples import Sample
from wallab.results import summary, table, tabulation
from wallab.results.condensed import condensed
from wallab.results.table import Table
from wallab.results.tabulation import Results

EXAMPLE = paths.RESULTS / "example-quick"
DIRECT = ("fsync_direct", "open_direct", "fdatasync_direct", "open_datasync_direct")
WHY = "the variant has no such method"


@pytest.fixture(scope="module")
def example() -> Results:
    """The example run."""
    return tabulation.results_of(EXAMPLE)


def laid_out(plan: Manifest, samples: list[Sample], *, published: bool = False) -> Table:
    """The table of all cells."""
    figures = reference.load("thread") if published else None
    return table.lay_out(plan, summary.summarize(plan, samples, figures), figures)


@pytest.fixture(scope="module")
def gathered(example: Results) -> tuple[Manifest, list[Sample]]:
    """The example's variant that has no direct methods, alone."""
    cells = tuple(c for c in example.plan.cells if c["variant"] == "gather-write")
    samples = [s for s in example.samples if s.cell["variant"] == "gather-write"]
    return msgspec.structs.replace(example.plan, cells=cells), samples


def test_columns_that_say_nothing(gathered: tuple[Manifest, list[Sample]]) -> None:
    plan, samples = gathered
    every = laid_out(plan, samples)
    shorter = condensed(every)
    assert set(every.columns) - set(shorter.columns) == set(DIRECT)
    named = "; ".join(f"column {name}" for name in every.columns if name in DIRECT)
    assert shorter.left_out == (f"Left out, since all of it is (N/A): {named}: {WHY}.",)
    assert [len(row.cells) for row in shorter.rows] == [len(shorter.columns)]
    results = Results(plan, samples, every)
    for kind in ("text", "markdown", "html"):
        page = tabulation.render(results, kind)
        assert WHY in page
        # It names them once, and has no cells for them.
        assert page.replace("\\_", "_").count("fdatasync_direct") == 1
    # Programs get every cell.
    assert tabulation.render(results, "csv").count("N/A") == len(DIRECT)
    cells = json.loads(tabulation.render(results, "json"))["rows"][0]["cells"]
    assert sum(cell["state"] == "N/A" for cell in cells) == len(DIRECT)


def test_rows_that_say_nothing(example: Results) -> None:
    lacking = tuple(
        NotApplicable(cell, "no such cache")
        for cell in example.plan.cells
        if cell["variant"] == "both"
    )
    plan = msgspec.structs.replace(example.plan, not_applicable=lacking)
    samples = [s for s in example.samples if s.cell["variant"] != "both"]
    shorter = condensed(laid_out(plan, samples))
    assert not any("both" in row.head for row in shorter.rows)
    assert shorter.left_out == (
        "Left out, since all of it is (N/A): row both, off: no such cache.",
    )
    # Whoever published figures of it has something to say.
    assert condensed(laid_out(plan, samples, published=True)).left_out == ()


def test_a_cell_beside_others_stays(example: Results) -> None:
    """gather-write's (N/A) stand in columns in which other variants have figures."""
    assert condensed(example.table) == example.table
    assert "(N/A)" in tabulation.render(example, "text")


def test_a_table_of_nothing_is_shown_as_it_is(gathered: tuple[Manifest, list[Sample]]) -> None:
    plan, _ = gathered
    lacking = tuple(NotApplicable(cell, WHY) for cell in plan.cells)
    every = laid_out(msgspec.structs.replace(plan, not_applicable=lacking), [])
    assert condensed(every) is every


def test_not_run_and_failed_are_no_reason(gathered: tuple[Manifest, list[Sample]]) -> None:
    plan, samples = gathered
    few = [s for s in samples if s.cell["sync"] != "fsync"]
    tried = next(s for s in samples if s.cell["sync"] == "fdatasync")
    few = [s for s in few if s.cell["sync"] != "fdatasync"]
    few.append(msgspec.structs.replace(tried, state="failed", figures=None, error="no"))
    shorter = condensed(laid_out(plan, few))
    assert {"fsync", "fdatasync"} <= set(shorter.columns)


def test_every_preset_measures_the_default_method() -> None:
    for name, experiment in matrix.read().experiment.items():
        for preset_name, preset in experiment.preset.items():
            if "fdatasync" not in experiment.axes.get("sync", ()):
                continue
            measured = {cell["sync"] for cell in matrix.cells(experiment, preset)}
            assert "fdatasync" in measured, (name, preset_name)
