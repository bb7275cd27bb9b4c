"""What every workload has: how its data are made, and how it is measured."""

from pathlib import Path
from typing import Any, ClassVar

import msgspec
import psycopg

from wallab.bench.contextswitches import ContextSwitches
from wallab.bench.pgbench import NothingDone
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.record.measured import Measured
from wallab.record.timeseries import TimeSeries
from wallab.servers.cluster import Cluster


class Outcome(msgspec.Struct, frozen=True):
    """What a workload measured in one sample."""

    figures: Measured
    open_flags: dict[str, int] = {}
    """How the kernel saw the WAL segment opened -> number of server processes."""
    values: dict[str, float] = msgspec.field(default_factory=dict)
    """Further figures; `wallab.record.values` names them."""
    series: dict[str, TimeSeries] = {}
    """What only the workload can tell over time; `wallab.bench.gauges` names it."""


class Workload:
    """A workload that runs with pgbench."""

    cold: ClassVar[bool] = False
    """Whether every sample begins with nothing of the database in memory."""

    checked: ClassVar[bool] = False
    """Whether the data are checked after every sample."""
    packages: ClassVar[dict[str, str]] = {}
    """Debian package -> program of it, that is installed when the workload is to run."""

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        """Create and fill the tables in the running cluster; LabError if that fails."""
        raise NotImplementedError

    def lacking(self) -> str:
        """Say why this machine cannot run it; nothing if it can."""
        return ""

    def prepare(self, stage: Stage, runner: Runner) -> None:
        """Make what a sample needs besides the tables; in no drive's time."""

    def fill_memory(self, stage: Stage) -> None:
        """Let a server whose memory is limited read what its machine had warm; in no drive's time.

        Nothing by default: the warm-up does it.
        """

    def script(self, stage: Stage) -> list[str]:
        """Return the arguments of pgbench that say what a transaction is."""
        raise NotImplementedError

    def warm_up(self, stage: Stage, runner: Runner) -> Measured | None:
        """Run for the preset's warm-up, before what counts; return what pgbench says of it.

        A slow machine may end no transaction in that time, which spoils no sample: None then.
        """
        script = self.script(stage)
        try:
            figures, _ = runner.pgbench(script, seconds=stage.preset.warm_up_seconds)
        except NothingDone:
            return None
        return figures

    def measure(self, stage: Stage, runner: Runner) -> Outcome:
        """Run as long as the preset says; RunFailed if that ends with an error."""
        switches = None
        if "context_switches_per_tx" in stage.values:
            switches = ContextSwitches(stage.cluster.postmaster())
        figures, flags = runner.pgbench(
            self.script(stage),
            seconds=stage.preset.seconds,
            transactions=stage.preset.transactions,
            logged=True,
            watch=switches.look if switches else None,
        )
        outcome = Outcome(figures, flags, series=per_second(stage, figures))
        if stage.conditions.cpus:
            outcome.values["client_cpus"] = float(stage.client_cpus)
        if switches and (rate := switches.per_second()) is not None:
            outcome.values["context_switches_per_tx"] = rate / figures.tps
        return outcome

    def check(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """RunFailed if the data are not what the transactions must have left."""


def per_second(stage: Stage, figures: Measured) -> dict[str, TimeSeries]:
    """Return the transactions of each second, if they are wanted and were logged."""
    if "rate" not in stage.series or not figures.course or not figures.course.per_second:
        return {}
    counts = figures.course.per_second
    ends = tuple(float(second) for second in range(1, len(counts) + 1))
    return {"rate": TimeSeries(ends, tuple(map(float, counts)))}


def prewarm(stage: Stage, schema: str) -> None:
    """Read the tables, then their indexes, which every transaction takes, and so are kept.

    What the limit of memory does not hold, the kernel drops while it reads.
    """
    with stage.cluster.connect() as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
        connection.execute(
            """
            SELECT pg_prewarm(oid, 'read') FROM (
                SELECT oid FROM pg_class
                WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'i')
                ORDER BY relkind DESC, pg_relation_size(oid) DESC) AS relations""",
            [schema],
        )
