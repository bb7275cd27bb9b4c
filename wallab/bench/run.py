"""A run: an experiment measured round by round into a directory below results/."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from wallab.bench.ahead import Ahead
from wallab.bench.bed import Bed
from wallab.bench.engine import Engine
from wallab.bench.schedule import Schedule, Turn
from wallab.duration import duration
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.files.timestamp import utc
from wallab.machine import ledger, rights
from wallab.progress import Work, say
from wallab.record import cost, difference, manifest
from wallab.record.cost import Session
from wallab.record.experiment import Cell, Experiment
from wallab.record.manifest import Manifest, NotApplicable
from wallab.record.samples import SAMPLES, Sample, SampleFile
from wallab.results.intervals import Estimate


def check_rights_for(experiment: Experiment) -> None:
    """MachineError unless this process may have the experiment's drives."""
    if experiment.machine == "virtual":
        return  # which takes none
    kinds = {drive.kind for drive in experiment.drive.values()}
    if "simulated" in kinds:
        rights.check()
    elif "device" in kinds and os.geteuid() != 0:
        raise MachineError(
            "switching a drive's write cache takes root: run this with sudo, or as root. "
            "PostgreSQL itself then runs as another user. --drive directory needs no rights."
        )


def turns_of(cells: Iterable[Cell], control: Cell | None) -> list[Turn]:
    """Return the turns of a round: the cells, and the one that the control measures again."""
    turns = [Turn(cell) for cell in cells]
    return turns + [Turn(turn.cell, control=True) for turn in turns if turn.cell == control]


class Run:
    """A run directory and what is still to be measured in it."""

    def __init__(
        self, folder: Path, plan: Manifest, bed: Bed, engine: Engine | None = None
    ) -> None:
        """`plan` lacks what only the test bed knows: methods and template.

        The engine takes its samples; if none is named they are measured one by one.
        """
        self.folder = folder
        self.samples = SampleFile(folder / SAMPLES)
        self._plan = plan
        self._bed = bed
        self._engine = engine or Ahead(bed, 1)

    def measure(self, *, resumed: bool, max_seconds: float | None = None) -> list[Sample]:
        """Measure what is missing, and return all samples.

        A new run makes the directory; a resumed one must have been made from the same plan. Past
        `max_seconds` no further sample is begun.
        """
        for line in ledger.clear_dead():
            say(f"left behind by an earlier run: {line}")
        if resumed:
            self._continue()
        before = self._plan.methods if resumed else None
        begun, started = time.monotonic(), utc()
        with contextlib.closing(self._bed):
            cells = self._open(begun, before)
            if not resumed:
                self.folder.mkdir(parents=True, exist_ok=True)
                jsonfile.sync_folder(self.folder.parent)
            turns = turns_of(cells, self._plan.preset.control)
            schedule = Schedule(turns, self._plan.preset, self._plan.seed)
            for sample in self.samples.read():
                schedule.add(sample)
            earlier = list(self._plan.sessions)

            def note(ended: str) -> None:
                now = Session(started, round(time.monotonic() - begun, 1), ended)
                self._plan.sessions = [*earlier, now]
                # Of a virtual machine, phases are in its time, and sessions in this one's.
                self._plan.cost = (
                    None
                    if self._plan.virtual
                    else cost.of(
                        self.samples.read(),
                        self._plan.sessions,
                        self._plan.preparing_s,
                        schedule.stopped(),
                    )
                )
                try:
                    jsonfile.save(self.folder / manifest.FILE, self._plan)
                except OSError as error:
                    raise MachineError(
                        f"{self.folder / manifest.FILE}: {error.strerror}; make room, then go on "
                        f"with: scripts/run-matrix --resume {self.folder}"
                    ) from None

            note("")
            try:
                deadline = None if max_seconds is None else begun + max_seconds
                ended = self._rounds(schedule, deadline, note)
            except BaseException:
                with contextlib.suppress(MachineError):
                    note("interrupted")
                raise
            note(ended)
            if self._plan.cost:
                say(cost.words(self._plan.cost))
            if self._plan.virtual:
                virtual = sum(sum(sample.phases.values()) for sample in self.samples.read())
                real = duration(sum(session.seconds for session in self._plan.sessions))
                say(f"{duration(virtual)} of virtual time were measured in {real}")
        return self.samples.read()

    def _open(self, begun: float, before: dict[str, tuple[str, ...]] | None) -> list[Cell]:
        """Make the bed ready, note what it found, and return the cells that it can measure.

        LabError where the servers' methods are not those of before (None: there was none).
        """
        plan = self._plan
        with Work("making the drives and the cluster") as work:
            work.update(0.0, f"scale {plan.preset.scale}")
            report = self._bed.open()
            plan.templates, plan.mounts = report.templates, report.mounts
            plan.machine = report.machine or plan.machine
            memory, plan.template_memory = plan.template_memory, report.template_memory
            plan.preparing_s = round(plan.preparing_s + time.monotonic() - begun, 1)
            plan.methods = self._bed.methods
            lacking = [(cell, self._bed.lacks(cell)) for cell in plan.cells]
            plan.not_applicable = tuple(
                NotApplicable(cell, reason) for cell, reason in lacking if reason
            )
        if before is not None and memory != plan.template_memory:
            raise LabError(
                f"{self.folder} cannot be resumed: the memory of its templates became another. "
                "Start a new run instead."
            )
        if before not in (None, plan.methods):
            raise LabError(
                f"{self.folder} cannot be resumed: the servers' values of wal_sync_method "
                "differ now. Start a new run instead."
            )
        if len(plan.not_applicable) == len(plan.cells):
            reasons = dict.fromkeys(lack.reason for lack in plan.not_applicable)
            raise MachineError(f"nothing can be measured here: {'; '.join(reasons)}")
        return [cell for cell, reason in lacking if not reason]

    def _continue(self) -> None:
        before = manifest.load(self.folder)
        if differing := difference.of_resumed(before, self._plan):
            raise LabError(
                f"{self.folder} cannot be resumed: what it measured differs now in "
                f"{', '.join(differing)}. Start a new run instead"
                f"{difference.way_back(before.lab, self._plan.lab)}."
            )
        self._plan = before
        jsonfile.clear_partial(self.folder)
        if self.samples.set_aside_damaged_end():
            say(f"{self.samples.path}: set the damaged last line aside")

    def _rounds(
        self, schedule: Schedule, deadline: float | None, note: Callable[[str], None]
    ) -> str:
        """Measure what is pending; return how that ended."""
        already = schedule.measured()
        plan = self._plan
        title = f"{plan.name}, {plan.preset_name}: up to {already + schedule.left()} samples"
        ended, last = "complete", 0
        with (
            Work(f"{title} in {plan.preset.rounds} rounds") as work,
            self._engine as engine,
        ):
            for number, _, turn in schedule.pending():
                if deadline is not None and time.monotonic() > deadline:
                    ended = "out of time"
                    break
                if number != last:
                    note("")
                    last = number
                done, left = schedule.measured(), schedule.left()
                work.update(
                    done / (done + left),
                    f"round {number}: {turn.name}{_so_far(schedule.so_far(turn))}{engine.words}",
                    # A virtual machine's seconds are not those that somebody waits.
                    None if plan.virtual else schedule.seconds_left(),
                )
                sample = engine.sample(schedule.pending)
                sample = msgspec.structs.replace(sample, control=turn.control)
                self.samples.append(sample)
                schedule.add(sample)
                if sample.state == "failed":
                    work.line(f"round {number}: {turn.name} failed: {sample.error}")
        say(f"{schedule.measured() - already} samples; raw samples: {self.samples.path}")
        if stopped := schedule.stopped():
            saved = sum(cell.saved_seconds for cell in stopped)
            say(f"{len(stopped)} cells were precise enough early, which saved {duration(saved)}")
        if ended == "out of time":
            say(
                f"--max-time is used up, {schedule.left()} samples are left; go on with: "
                f"scripts/run-matrix --resume {self.folder}"
            )
        return ended


def _so_far(known: Estimate | None) -> str:
    if known is None:
        return ""
    spread = f" ± {known.half_width:.1f}" if known.half_width is not None else ""
    return f", {known.mean:.1f}{spread} TPS so far"
