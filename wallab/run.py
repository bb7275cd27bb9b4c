"""A run: an experiment measured round by round into a directory below results/."""

import contextlib
import os
import time
from pathlib import Path

from wallab import container, jsonfile, ledger, manifest, prebuilt, schedule
from wallab.errors import LabError, MachineError
from wallab.manifest import Manifest, NotApplicable
from wallab.progress import Work, duration, say
from wallab.samples import Sample, SampleFile
from wallab.testbed import TestBed, utc

MANIFEST = "manifest.json"
SAMPLES = "samples.jsonl"


def check_rights() -> None:
    """MachineError unless this process may make simulated drives."""
    if prebuilt.image() and (missing := container.lacking()):
        raise MachineError(
            f"simulated drives take rights that this container lacks ({', '.join(missing)}); "
            f"start it with:\n  {container.command()}"
        )
    if os.geteuid() != 0:
        raise MachineError(
            "simulated drives take mounts and loop devices, and so root: run this with sudo, or "
            "as root. PostgreSQL itself then runs as another user."
        )
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise MachineError(
            "simulated drives need FUSE, and there is no usable /dev/fuse: load the kernel's "
            "module (modprobe fuse), or give a container --device /dev/fuse"
        )


class Run:
    """A run directory and what is still to be measured in it."""

    def __init__(self, folder: Path, plan: Manifest, servers: dict[str, Path]) -> None:
        """`plan` lacks what only the test bed knows: methods and template."""
        self.folder = folder
        self.samples = SampleFile(folder / SAMPLES)
        self._plan = plan
        self._bed = TestBed(plan.experiment, plan.preset, plan.cells, servers)

    def measure(self, *, resumed: bool) -> list[Sample]:
        """Measure what is missing, and return all samples.

        A new run makes the directory; a resumed one must have been made from the same plan.
        """
        for line in ledger.clear_dead():
            say(f"left behind by an earlier run: {line}")
        with contextlib.closing(self._bed):
            with Work("making the drives and the cluster") as work:
                work.update(0.0, f"scale {self._plan.preset.scale}")
                self._plan.template = self._bed.open()
                self._plan.methods = self._bed.methods
                self._plan.not_applicable = tuple(
                    NotApplicable(cell, reason)
                    for cell in self._plan.cells
                    if (reason := self._bed.lacks(cell))
                )
            if resumed:
                self._continue()
            else:
                self.folder.mkdir(parents=True)
                jsonfile.save(self.folder / MANIFEST, self._plan)
            self._rounds()
        return self.samples.read()

    def _continue(self) -> None:
        before = manifest.load(self.folder)
        if differing := manifest.difference(before, self._plan):
            raise LabError(
                f"{self.folder} cannot be resumed: what it measured differs now in "
                f"{', '.join(differing)}. Start a new run instead."
            )
        self._plan = before
        if self.samples.set_aside_damaged_end():
            say(f"{self.samples.path}: set the damaged last line aside")

    def _rounds(self) -> None:
        plan = self._plan
        cells = [cell for cell in plan.cells if not self._bed.lacks(cell)]
        ordered = schedule.rounds(cells, plan.preset.rounds, plan.seed)
        done = {(s.round, tuple(s.cell.items())) for s in self.samples.read()}
        total = len(cells) * plan.preset.rounds
        already = len(done)
        begun = time.monotonic()
        title = f"{plan.name}, {plan.preset_name}: {total} samples in {plan.preset.rounds} rounds"
        with Work(title) as work:
            for number, shuffled in enumerate(ordered, 1):
                for position, cell in enumerate(shuffled, 1):
                    if (number, tuple(cell.items())) in done:
                        continue
                    finished = len(done) - already
                    left = (
                        (time.monotonic() - begun) / finished * (total - len(done))
                        if finished
                        else None
                    )
                    name = " ".join(cell.values())
                    work.update(len(done) / total, f"round {number}: {name}", left)
                    sample = self._bed.sample(cell, number, position)
                    self.samples.append(sample)
                    done.add((number, tuple(cell.items())))
                    if sample.state == "failed":
                        work.line(f"round {number}: {name} failed: {sample.error}")
        spent = duration(time.monotonic() - begun)
        say(f"{total - already} samples in {spent}; raw samples: {self.samples.path}")


def new_folder(results: Path, experiment: str) -> Path:
    """Return a directory for a new run that is not there yet."""
    stamp = utc().replace("-", "").replace(":", "").replace("T", "-").rstrip("Z")
    folder = results / f"{stamp}-{experiment}"
    number = 2
    while folder.exists():
        folder = results / f"{stamp}-{experiment}-{number}"
        number += 1
    return folder
