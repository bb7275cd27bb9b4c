"""A run of an experiment that is small enough for a test, by the command that users type."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.leftovers import wait_for_nothing
from wallab import paths
from wallab.record import manifest
from wallab.record.manifest import Manifest
from wallab.record.samples import Sample, SampleFile

PATIENCE = 900
"""Seconds that such a run may take; it takes some 10."""


class SmallRun(NamedTuple):
    """What a run has left: nothing on the machine, and no sample that failed."""

    table: str
    """As it was printed."""
    samples: list[Sample]
    folder: Path

    @property
    def plan(self) -> Manifest:
        """Its manifest."""
        return manifest.load(self.folder)


def run_small(text: str, home: Path, *options: str | Path, enter: Sequence[str] = ()) -> SmallRun:
    """Run the preset smoke of the text's experiment in `home`; `enter` goes before the command."""
    match = re.search(r"^\[experiment\.(\w+)\]$", text, re.MULTILINE)
    assert match
    file, folder = home / "matrix.toml", home / "out"
    file.write_text(text)
    result = subprocess.run(
        [*enter, paths.LAB / "scripts" / "run-matrix", match[1], "--preset", "smoke",
         "--matrix", file, "--output", folder, *options],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    samples = SampleFile(folder / "samples.jsonl").read()
    assert [sample.error for sample in samples if sample.state != "measured"] == []
    assert wait_for_nothing() == {}
    return SmallRun(result.stdout, samples, folder)
