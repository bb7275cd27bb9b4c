"""The committed run of a virtual machine: anybody can measure its samples again."""

import subprocess

import pytest

from wallab import paths
from wallab.record import manifest
from wallab.virtual import reproduction

RUN = paths.LAB / "results" / "example-virtual"
SAMPLES = 3
PATIENCE = 3000
"""Seconds; with servers, templates and images to be made, on a busy machine."""

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason=f"there is no {RUN.name} in results/ yet")


def test_it_is_the_thread_in_virtual_time() -> None:
    known = manifest.load(RUN)
    assert (known.name, known.preset_name) == ("thread", "quick")
    assert known.virtual is not None
    assert known.lab["changed"] == "no"
    assert len(reproduction.chosen(RUN, SAMPLES)) == SAMPLES


@pytest.mark.stack
@pytest.mark.timeout(PATIENCE)
def test_three_of_its_samples_are_the_same_bytes_here() -> None:
    done = subprocess.run(
        [paths.LAB / "scripts" / "reproduce", RUN, "--samples", str(SAMPLES)],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    if done.returncode == 3:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": the same ") == SAMPLES
