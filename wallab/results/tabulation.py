"""Tables derived from a run's raw samples, the same bytes every time."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.record import manifest, reference
from wallab.record.manifest import Manifest
from wallab.record.samples import SAMPLES, Sample, SampleFile
from wallab.results import against, summary, table, within
from wallab.results.against import Against
from wallab.results.condensed import condensed
from wallab.results.export import csvfile, curves, html, mail, markdown, plots, text
from wallab.results.export.svg import Drawing
from wallab.results.table import Mark, Table


class Results(msgspec.Struct, frozen=True):
    """All that a run directory says."""

    plan: Manifest
    samples: list[Sample]
    table: Table


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": lambda laid_out: text.render(condensed(laid_out)),
    "markdown": lambda laid_out: markdown.render(condensed(laid_out)),
    "csv": csvfile.render,
    "json": lambda laid_out: jsonfile.pretty(laid_out) + "\n",
}
"""People get a table without what is (N/A) throughout, programs all cells."""

PAGES: dict[str, Callable[[Results], str]] = {
    "html": lambda results: html.render(results.plan, results.samples, condensed(results.table)),
    "svg": lambda results: plots.bars(condensed(results.table)).file(),
    "svg-heads": lambda results: plots.heads(condensed(results.table)).file(),
    "svg-drift": lambda results: plots.drift(results.samples, results.table.values[0]).file(),
}
"""What shows more than the table has."""

DRAWINGS: dict[str, Callable[[Results], Drawing | None]] = {
    "svg-curves": lambda results: curves.along(results.table),
    "svg-time": lambda results: curves.over_time(results.table, results.samples),
}
"""What only some runs have something to draw for."""

MAIL = "mail"
"""What only a run has whose variants can be compared."""

KINDS = (*FORMATS, MAIL, *PAGES, *DRAWINGS)

FILES = {
    "text": "table.txt",
    "markdown": "table.md",
    "csv": "table.csv",
    "html": "report.html",
    "svg": "bars.svg",
    "svg-heads": "heads.svg",
    "svg-drift": "drift.svg",
    "svg-curves": "curves.svg",
    "svg-time": "time.svg",
}


def results_of(
    folder: Path,
    rows: tuple[str, ...] = (),
    column: str | None = None,
    value: str | None = None,
    mark: Mark | None = None,
) -> Results:
    """Return what a run directory says; LabError if it is none, or has no such value.

    Rows, column and value are the experiment's unless they are named. `mark` says what power cuts
    have shown of a cell.
    """
    plan = table.rearranged(manifest.load(folder), rows, column, value)
    name = plan.experiment.reference
    published = reference.load(name, plan.experiment.axes) if name else None
    measured = SampleFile(folder / SAMPLES).read()
    summaries = summary.summarize(plan, measured, published)
    if value and measured and not any(value in cell.values for cell in summaries):
        raise LabError(f"--value {value}: no sample of {folder} has that figure")
    laid_out = table.lay_out(plan, summaries, published, summary.control(plan, measured))
    laid_out = msgspec.structs.replace(laid_out, within=within.compare(plan, measured, summaries))
    if mark:
        laid_out = table.marked(laid_out, mark)
    # The control is a statement about the run, and no cell of it.
    return Results(plan, [sample for sample in measured if not sample.control], laid_out)


def table_of(folder: Path) -> Table:
    """Return the table of a run; LabError if the directory holds none."""
    return results_of(folder).table


def content(results: Results, kind: str) -> str | None:
    """Return the results in one of KINDS; None if the run has nothing for it."""
    if kind == MAIL:
        return mail.render(results.plan, results.table)
    if kind in DRAWINGS:
        drawing = DRAWINGS[kind](results)
        return drawing.file() if drawing else None
    return PAGES[kind](results) if kind in PAGES else FORMATS[kind](results.table)


def render(results: Results, kind: str) -> str:
    """Return the results in one of KINDS; LabError if the run has nothing for it."""
    document = content(results, kind)
    if document is None and kind == MAIL:
        raise LabError(
            "nothing for a mail: no variant of the run was measured beside the one that it is "
            "built on; scripts/run-matrix --variants stock,NAME measures both"
        )
    if document is None:
        raise LabError(
            f"nothing to draw as {kind}: svg-curves takes columns that are numbers, svg-time "
            "an experiment that looks at figures over time"
        )
    return document


def comparison_of(new: Path, old: Path, value: str | None = None) -> Against:
    """Compare two runs cell by cell; LabError if they have none in common."""
    sides = [(manifest.load(folder), SampleFile(folder / SAMPLES).read()) for folder in (new, old)]
    return against.compare(sides[0], sides[1], value)


def write_files(folder: Path) -> Table:
    """Write the run's derived files beside its samples, and return its table.

    MachineError where one cannot be written, as on a full disk.
    """
    results = results_of(folder)
    for kind, file in FILES.items():
        document = content(results, kind)
        if document is None:
            continue
        try:
            (folder / file).write_text(document)
        except OSError as error:
            raise MachineError(
                f"{folder / file}: {error.strerror}; all samples are kept: scripts/tabulate "
                f"{folder} --format {kind} prints the same"
            ) from None
    return results.table
