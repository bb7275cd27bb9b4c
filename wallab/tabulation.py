"""Tables derived from a run's raw samples, the same bytes every time."""

from collections.abc import Callable
from pathlib import Path

from wallab import jsonfile, manifest, reference, run, summary, table
from wallab.export import csvfile, markdown, text
from wallab.samples import SampleFile
from wallab.table import Table

FORMATS: dict[str, Callable[[Table], str]] = {
    "text": text.render,
    "markdown": markdown.render,
    "csv": csvfile.render,
    "json": lambda laid_out: jsonfile.pretty(laid_out) + "\n",
}

FILES = {"text": "table.txt", "markdown": "table.md", "csv": "table.csv"}


def table_of(folder: Path) -> Table:
    """Return the table of a run; LabError if the directory holds none."""
    plan = manifest.load(folder)
    name = plan.experiment.reference
    published = reference.load(name) if name else None
    samples = SampleFile(folder / run.SAMPLES).read()
    return table.lay_out(plan, summary.summarize(plan, samples, published), published)


def write_files(folder: Path) -> Table:
    """Write the run's derived files beside its samples, and return its table."""
    laid_out = table_of(folder)
    for kind, file in FILES.items():
        (folder / file).write_text(FORMATS[kind](laid_out))
    return laid_out
