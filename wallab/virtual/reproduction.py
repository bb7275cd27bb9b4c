"""Samples of a virtual run measured again: the same bytes, or the first that is not."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from wallab.bench.bed import Bed
from wallab.bench.plan import RunPlan, prepare
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.record.samples import SAMPLES, Sample
from wallab.virtual import inputs
from wallab.virtual.bed import VirtualBed


class Difference(msgspec.Struct, frozen=True):
    """The first place where a sample is not what it was."""

    field: str
    """Its way into the sample, with dots."""
    run: Any
    here: Any
    """What is in each; None where there is none."""


class Line(msgspec.Struct, frozen=True):
    """A sample as the run has it."""

    number: int
    """In samples.jsonl, from 1."""
    text: bytes
    sample: Sample

    @property
    def name(self) -> str:
        """It for people."""
        control = " (control)" if self.sample.control else ""
        cell = " ".join(self.sample.cell.values())
        return f"sample {self.number}, round {self.sample.round}: {cell}{control}"


def chosen(folder: Path, count: int) -> list[Line]:
    """Return so many samples of the run, or all, spread evenly; LabError if it has none."""
    texts = (folder / SAMPLES).read_bytes().splitlines() if (folder / SAMPLES).exists() else []
    if not texts:
        raise LabError(f"{folder}: no samples in it yet")
    count = min(count, len(texts))
    numbers = [index * len(texts) // count for index in range(count)]
    lines = []
    for number in numbers:
        try:
            sample = jsonfile.loads(texts[number], Sample)
        except msgspec.MsgspecError as error:
            raise LabError(f"{folder / SAMPLES}, line {number + 1}: {error}") from None
        lines.append(Line(number + 1, texts[number], sample))
    return lines


def difference(run: bytes, here: bytes) -> Difference | None:
    """Return the first difference of two samples as they are written; None: the same bytes."""
    if run == here:
        return None
    first = _first("", jsonfile.loads(run, Any), jsonfile.loads(here, Any))
    return first or Difference("", run.decode(errors="replace"), here.decode(errors="replace"))


def _first(place: str, run: Any, here: Any) -> Difference | None:
    if isinstance(run, dict) and isinstance(here, dict):
        parts = [(key, run.get(key), here.get(key)) for key in [*run, *(here.keys() - run.keys())]]
    elif isinstance(run, list) and isinstance(here, list) and len(run) == len(here):
        parts = [(str(number), *pair) for number, pair in enumerate(zip(run, here, strict=True))]
    else:
        return None if _alike(run, here) else Difference(place, run, here)
    inside = (_first(f"{place}.{key}" if place else str(key), *pair) for key, *pair in parts)
    return next(filter(None, inside), None)


def _alike(run: Any, here: Any) -> bool:
    return type(run) is type(here) and bool(run == here)


class Reproduction:
    """A bed as the run's, with what some of its samples take."""

    def __init__(self, manifest: Manifest, lines: Sequence[Line], jobs: int | None) -> None:
        """MachineError names what is not here, or not the same, before anything is measured."""
        self._manifest = manifest
        self._lines = lines
        self._scratch = tempfile.TemporaryDirectory()
        try:
            self._bed = self._made(jobs)
        except BaseException:
            self._scratch.cleanup()
            raise

    def _made(self, jobs: int | None) -> VirtualBed:
        known = self._manifest
        assert known.virtual is not None
        cells: dict[tuple[str, ...], Cell] = {
            tuple(line.sample.cell.values()): line.sample.cell for line in self._lines
        }
        systems = {build.build_system for build in known.builds.values()}
        plan = RunPlan(
            folder=Path(self._scratch.name),
            name=known.name,
            preset_name=known.preset_name,
            experiment=known.experiment,
            preset=known.preset,
            cells=tuple(cells.values()),
            seed=known.seed,
            build_system=systems.pop() if len(systems) == 1 else "auto",
            resumed=True,
        )
        try:
            prepared = prepare(plan)
        except LabError as error:
            raise MachineError(f"a server of the run cannot be had here: {error}") from None
        here = prepared.manifest
        bed = VirtualBed(
            here.experiment, here.preset, here.cells, prepared.servers, seed=here.seed,
            folder=plan.folder, workers=jobs, packages=known.virtual.packages,
        )  # fmt: skip
        here.virtual = bed.machine
        _same(inputs.differing(known, here))
        return bed

    def differences(self) -> Iterator[tuple[Line, Difference | None]]:
        """Measure the samples, and yield each with how it differs, in their order.

        MachineError if a template becomes another one than it was for the run.
        """
        with contextlib.closing(self._bed), self._scratch:
            report = self._bed.open()
            _same(inputs.of_memory(self._manifest, report.template_memory))
            yield from compared(self._bed, self._lines, self._bed.jobs)


def compared(
    bed: Bed, lines: Sequence[Line], jobs: int
) -> Iterator[tuple[Line, Difference | None]]:
    """Measure the samples on an open bed, so many at a time, and yield how each differs."""

    def measured(line: Line) -> bytes:
        known = line.sample
        sample = bed.sample(known.cell, known.round, known.position, control=known.control)
        return jsonfile.dumps(msgspec.structs.replace(sample, control=known.control))

    pool = ThreadPoolExecutor(jobs)
    try:
        for line, here in zip(lines, pool.map(measured, lines), strict=True):
            yield line, difference(line.text, here)
    finally:
        bed.close()  # which ends what nobody waits for any more
        pool.shutdown(cancel_futures=True)


def _same(differing: list[str]) -> None:
    if differing:
        raise MachineError(f"not the same here as in the run: {'; '.join(differing)}")
