"""A sample: a cell measured once on its stage, from the fresh drives to their end."""

import resource
import signal
from collections.abc import Callable
from typing import Any

import psycopg

from wallab.bench import workloads
from wallab.bench.pgbench import RunFailed
from wallab.bench.phases import Phases
from wallab.bench.readback import read_back
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.bench.timeline import Timeline
from wallab.bench.walactivity import read_counters, wait_until_alone
from wallab.bench.workloads.base import Outcome
from wallab.files.timestamp import utc
from wallab.machine.memorygroup import MemoryGroup
from wallab.record.experiment import Cell
from wallab.record.samples import CpuSeconds, Sample
from wallab.record.timeseries import TimeSeries
from wallab.servers.cluster import ServerFailed


def take(
    stage: Stage,
    cell: Cell,
    place: tuple[int, int],
    settings: dict[str, str],
    groups: Callable[[int], MemoryGroup],
) -> Sample:
    """Measure the cell with the server's settings; `place` is its round and position there.

    A run that fails is a sample that says so; MachineError if the bed itself broke. Nothing is
    left of the server and of the mounts in either case, unless it is the machine's last.
    """
    started = utc()
    phases = Phases()
    gained: dict[str, Any] = {}
    error = ""
    try:
        gained = _measure(stage, cell, settings, Runner(stage, groups), phases)
    except (RunFailed, ServerFailed, psycopg.Error) as failure:
        error = _account(stage, failure)
    finally:
        if not stage.last:
            with phases.phase("stop"):
                _end(stage)
    return Sample(
        cell=cell,
        round=place[0],
        position=place[1],
        started=started,
        state="measured" if gained else "failed",
        error=error,
        phases=phases.seconds,
        **gained,
    )


def _account(stage: Stage, failure: Exception) -> str:
    """Say why a run failed, with what the server's log says of it, which goes with the bed."""
    reason, complaints = str(failure).strip(), stage.cluster.complaints()
    if not complaints or complaints in reason:
        return reason
    return f"{reason}; the server's log: {complaints}"


def _end(stage: Stage) -> None:
    """End the sample: the content is thrown away, so nothing needs to be saved."""
    try:
        stage.timing(False)
    finally:
        # Also if a drive is gone, or a second Ctrl-C comes: its file system stays busy else.
        stage.cluster.stop(signal.SIGQUIT)
    for drive in stage.drives.values():
        drive.unmount()
    # An experiment may have many drives, and uses a few at a time.
    for drive in stage.drives.values():
        drive.forget()


def _restore(stage: Stage) -> None:
    for name, drive in stage.drives.items():
        asked = stage.conditions.drives[name]
        if not stage.ready:
            drive.restore()
            drive.mount_options = asked.mount_options
            drive.mount()
        drive.set_write_cache(asked.write_cache)
        drive.set_read_ahead(asked.read_ahead)


def _measure(
    stage: Stage, cell: Cell, settings: dict[str, str], runner: Runner, phases: Phases
) -> dict[str, Any]:
    workload = workloads.find(stage.conditions.workload)
    with phases.phase("restore"):
        _restore(stage)
    with phases.phase("start"):
        stage.cluster.start(stage.server, settings, stage.conditions.cpus)
    with phases.phase("read"):
        # What the thread's machine had warm after 20 runs is read with the timing off.
        # Where memory is limited, the server reads by itself, on its own account.
        if stage.group is not None:
            workload.fill_memory(stage)
        elif not workload.cold and not stage.ready:
            stage.cluster.read_into_memory()
        workload.prepare(stage, runner)
    warm_up = None
    if stage.preset.warm_up_seconds:
        with phases.phase("warm_up"):
            stage.timing(True)
            warm_up = workload.warm_up(stage, runner)
    with stage.cluster.connect() as connection:
        with phases.phase("checkpoint"):
            # So that each sample is as far from the next checkpoint, whatever its warm-up
            # wrote. In no time of the drives': no figure includes it.
            stage.timing(False)
            connection.execute("CHECKPOINT")
            stage.timing(True)
        with phases.phase("count"):
            for drive in stage.drives.values():
                drive.reset()
            wait_until_alone(connection)
            before = read_counters(connection)
            busy = _cpu_seconds(stage)
        with phases.phase("measure"):
            outcome, series = _watched(stage, runner, lambda: workload.measure(stage, runner))
        with phases.phase("count"):
            drives = {name: drive.reading() for name, drive in stage.drives.items()}
            wait_until_alone(connection)
            after = read_counters(connection)
            cpu_seconds = _cpu_seconds(stage).since(busy)
        if workload.checked:
            with phases.phase("check"):
                stage.timing(False)
                workload.check(connection)
    limit = {"memory_limit_mb": stage.group.limit / (1 << 20)} if stage.group else {}
    return {
        "figures": outcome.figures,
        "warm_up": warm_up,
        "cpu_seconds": cpu_seconds,
        "wal": after.since(before),
        "drive": drives,
        "write_cache": {name: drive.write_cache() for name, drive in stage.drives.items()},
        "open_flags": outcome.open_flags,
        "values": outcome.values | limit,
        "series": series | outcome.series,
        "read_back": read_back(cell, stage),
    }


def _watched(
    stage: Stage, runner: Runner, measure: Callable[[], Outcome]
) -> tuple[Outcome, dict[str, TimeSeries]]:
    """Measure, and look meanwhile at what the experiment wants to see over time."""
    if not stage.series:
        return measure(), {}
    runner.timeline = timeline = Timeline(stage, stage.series)
    try:
        outcome = measure()
        timeline.look()
    finally:
        runner.timeline = None
    return outcome, timeline.series()


def _cpu_seconds(stage: Stage) -> CpuSeconds:
    """Processor time so far: of the server, and of the children that have ended (pgbench)."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return CpuSeconds(stage.cluster.cpu_seconds(), ended.ru_utime + ended.ru_stime)
