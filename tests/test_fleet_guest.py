"""A host of a fleet with real guests: what it lacks is sent, and its samples are the same bytes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fleethosts import Hosts
from test_virtual import PATIENCE, TINY, lacking

from wallab import paths
from wallab.record.samples import SAMPLES

pytestmark = pytest.mark.skipif(
    not os.environ.get("WALLAB_TEST_FLEET"),
    reason="measures with guests on two hosts for minutes: set WALLAB_TEST_FLEET=1",
)


def command(home: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Measure a run."""
    asked: list[str | Path] = [
        "tiny", "--preset", "smoke", "--matrix", home / "matrix.toml", "--seed", "3",
        "--rounds", "1", "--output", home / name, *options,
    ]  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "wallab.command.run_matrix", *asked],
        cwd=paths.LAB, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


def test_a_host_that_has_nothing_measures_the_same_bytes(tmp_path: Path) -> None:
    if reason := lacking():
        pytest.skip(reason)
    (tmp_path / "matrix.toml").write_text(TINY)
    # The lab's own program that the emulator preloads, and nothing else.
    own = {"WALLAB_CACHE": str(tmp_path / "cache"), "WALLAB_RUNTIME": str(tmp_path / "far")}
    alone = command(tmp_path, "alone")
    assert alone.returncode == 0, alone.stderr
    with Hosts(tmp_path) as hosts:
        worker = hosts.worker("far", environment=own)
        fleet = command(tmp_path, "fleet", "--scheduler", hosts.address)
        assert fleet.returncode == 0, fleet.stderr + hosts.log
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 130, hosts.log
    assert (tmp_path / "fleet" / SAMPLES).read_bytes() == (
        tmp_path / "alone" / SAMPLES
    ).read_bytes()
    noted = (tmp_path / "fleet" / "host.jsonl").read_text().splitlines()
    notes = [json.loads(line) for line in noted]
    assert {note["host"] for note in notes if "cell" in note} == {"far"}
    assert list((tmp_path / "cache" / "virtual" / "parcels").iterdir())
    # Its guests are gone, and what they had.
    assert list((tmp_path / "far").glob("*")) == []
