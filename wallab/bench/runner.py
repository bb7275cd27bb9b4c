"""Programs at work on a stage: clients and others, watched while they run."""

import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from wallab.bench.openflags import open_flags
from wallab.bench.pgbench import Pgbench, RunFailed, without_rest
from wallab.bench.stage import Stage
from wallab.bench.timeline import LOOK_S, Timeline
from wallab.machine import process
from wallab.machine.memorygroup import MemoryGroup
from wallab.record.measured import Measured

HANGING = 900.0
"""Seconds that pgbench may take beside ten times what it was told; busy machines need far less."""


class Runner:
    """Runs programs for a sample, and looks meanwhile at what is wanted over time."""

    def __init__(self, stage: Stage, groups: Callable[[int], MemoryGroup]) -> None:
        """`groups` gives a control group of so many MB, page cache included, for programs."""
        self._stage = stage
        self._groups = groups
        self.timeline: Timeline | None = None
        """What is looked at now."""

    def program(
        self, command: list[str | Path], folder: Path, memory_mb: int | None = None
    ) -> tuple[str, float]:
        """Run a program as the server's user; return what it printed, and seconds.

        RunFailed if it ends with an error.
        """
        group = self._groups(memory_mb) if memory_mb else None
        begun = time.monotonic()
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = process.spawn(
                group.waiting(command) if group else command,
                as_server=True,
                cwd=folder,
                stdin=subprocess.PIPE if group else subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
            try:
                if group:
                    group.admit(child)
                for _ in self._while_running(child):
                    pass
            finally:
                process.end_group(child)
                if group:
                    group.kill()  # what it started and did not wait for
            seconds = time.monotonic() - begun
            output.seek(0)
            errors.seek(0)
            printed = output.read().decode(errors="replace")
            if child.returncode:
                words = errors.read().decode(errors="replace").strip() or printed.strip()
                raise RunFailed(f"{command[0]} exited with {child.returncode}: {words[-500:]}")
        return printed, seconds

    def _while_running(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """Yield now and then while the child runs, having looked at what is watched over time."""
        while True:
            try:
                child.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                if self.timeline:
                    self.timeline.look()
                yield
            else:
                return

    def pgbench(
        self,
        script: list[str],
        *,
        seconds: int | None = None,
        transactions: int | None = None,
        logged: bool = False,
        watch: Callable[[], None] | None = None,
    ) -> tuple[Measured, dict[str, int]]:
        """Run pgbench; look once, in its midst, at how the server has its WAL open.

        `watch` is called now and then while it runs.
        """
        conditions, cluster = self._stage.conditions, self._stage.cluster
        pgbench = Pgbench(self._stage.server, cluster)
        log = cluster.clients / "transactions" if logged else None
        arguments = pgbench.arguments(
            script,
            conditions.clients,
            threads=min(conditions.cpus or 1, conditions.clients),
            seconds=seconds,
            transactions=transactions,
            log=log,
            seed=self._stage.seed,
            rate=conditions.rate,
        )
        # A server with a deadlock is to fail the sample, not to hang the run.
        deadline = time.monotonic() + (HANGING + 10 * seconds if seconds else math.inf)
        child = pgbench.start(*arguments, cpus=conditions.cpus, skipped=self._stage.client_cpus)
        try:
            flags: dict[str, int] = {}
            for _ in self._while_running(child):
                if watch:
                    watch()
                if not flags:
                    flags = open_flags(cluster.postmaster(), cluster.wal)
                if (flags and not watch and not self.timeline) or time.monotonic() > deadline:
                    break
            left = max(0.0, deadline - time.monotonic()) if seconds else None
            figures = pgbench.finish(child, log, left)
        finally:
            cluster.confinement.end(child)
        if conditions.rate is not None and figures.lag is None:
            raise RunFailed("pgbench tells no schedule lag, so it kept to no rate")
        return without_rest(figures, conditions.think_ms), flags
