"""The committed runs: raw files, and of what follows from them the table and one report."""

from pathlib import Path

import pytest

from wallab import paths
from wallab.results import tabulation

RUNS = sorted(file.parent for file in paths.RESULTS.glob("example-*/manifest.json"))
REPORT = "example-quick"


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_tables_are_what_the_samples_say(run: Path) -> None:
    results = tabulation.results_of(run)
    assert tabulation.render(results, "text") == (run / "table.txt").read_text()
    kept = {"manifest.json", "samples.jsonl", "table.txt"}
    if run.name == REPORT:
        kept.add("report.html")
    assert {file.name for file in run.iterdir()} == kept
