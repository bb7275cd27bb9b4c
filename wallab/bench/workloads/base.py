"""What every workload has: how its data are made, and how it is measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import psycopg

from wallab.bench.cluster import Cluster
from wallab.bench.contextswitches import ContextSwitches
from wallab.bench.pgbench import Measured, NothingDone
from wallab.bench.timeline import Series
from wallab.record.conditions import Conditions

if TYPE_CHECKING:
    from wallab.bench.testbed import TestBed
    from wallab.record.matrix import Preset


class Outcome(msgspec.Struct, frozen=True):
    """What a workload measured in one sample."""

    figures: Measured
    open_flags: dict[str, int] = {}
    """How the kernel saw the WAL segment opened -> number of server processes."""
    values: dict[str, float] = msgspec.field(default_factory=dict)
    """Further figures; `wallab.record.values` names them."""
    series: dict[str, Series] = {}
    """What only the workload can tell over time; `wallab.bench.gauges` names it."""


class Workload:
    """A workload that runs with pgbench."""

    cold: ClassVar[bool] = False
    """Whether every sample begins with nothing of the database in memory."""

    checked: ClassVar[bool] = False
    """Whether the data are checked after every sample."""
    packages: ClassVar[dict[str, str]] = {}
    """Debian package -> program of it, that is installed when the workload is to run."""
    writes: bool = True
    """Whether its transactions write WAL, so that the WAL's counters explain its figures."""

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        """Create and fill the tables in the running cluster; LabError if that fails."""
        raise NotImplementedError

    def lacking(self) -> str:
        """Say why this machine cannot run it; nothing if it can."""
        return ""

    def prepare(self, bed: "TestBed", preset: "Preset") -> None:
        """Make what a sample needs besides the tables; in no drive's time."""

    def fill_memory(self, bed: "TestBed") -> None:
        """Let a server whose memory is limited read what its machine had warm; in no drive's time.

        Nothing by default: the warm-up does it.
        """

    def script(self, bed: "TestBed", conditions: Conditions, preset: "Preset") -> list[str]:
        """Return the arguments of pgbench that say what a transaction is."""
        raise NotImplementedError

    def warm_up(self, bed: "TestBed", conditions: Conditions, preset: "Preset") -> Measured | None:
        """Run for the preset's warm-up, before what counts; return what pgbench says of it.

        A slow machine may end no transaction in that time, which spoils no sample: None then.
        """
        script = self.script(bed, conditions, preset)
        try:
            figures, _ = bed.run_pgbench(conditions, script, seconds=preset.warm_up_seconds)
        except NothingDone:
            return None
        return figures

    def measure(self, bed: "TestBed", conditions: Conditions, preset: "Preset") -> Outcome:
        """Run as long as the preset says; RunFailed if that ends with an error."""
        switches = None
        if "context_switches_per_tx" in bed.values:
            switches = ContextSwitches(bed.cluster.postmaster())
        figures, flags = bed.run_pgbench(
            conditions,
            self.script(bed, conditions, preset),
            seconds=preset.seconds,
            transactions=preset.transactions,
            logged=True,
            watch=switches.look if switches else None,
        )
        outcome = Outcome(figures, flags, series=per_second(bed, figures))
        if conditions.cpus:
            outcome.values["client_cpus"] = float(bed.client_cpus(conditions))
        if switches and (rate := switches.per_second()) is not None:
            outcome.values["context_switches_per_tx"] = rate / figures.tps
        return outcome

    def check(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """RunFailed if the data are not what the transactions must have left."""

    def amount(self, preset: "Preset") -> str:
        """Say in a few words what a sample is, for the table's second line."""
        amount = f"-T {preset.seconds}" if preset.seconds else f"-t {preset.transactions}"
        return f"pgbench -s {preset.scale} -c {preset.clients} {amount}"


def per_second(bed: "TestBed", figures: Measured) -> dict[str, Series]:
    """Return the transactions of each second, if they are wanted and were logged."""
    if "rate" not in bed.series or not figures.course or not figures.course.per_second:
        return {}
    counts = figures.course.per_second
    ends = tuple(float(second) for second in range(1, len(counts) + 1))
    return {"rate": Series(ends, tuple(map(float, counts)))}


def prewarm(bed: "TestBed", schema: str) -> None:
    """Read the tables, then their indexes, which every transaction takes, and so are kept.

    What the limit of memory does not hold, the kernel drops while it reads.
    """
    with bed.cluster.connect() as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
        connection.execute(
            """
            SELECT pg_prewarm(oid, 'read') FROM (
                SELECT oid FROM pg_class
                WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'i')
                ORDER BY relkind DESC, pg_relation_size(oid) DESC) AS relations""",
            [schema],
        )
