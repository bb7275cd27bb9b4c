"""A load like TPC-C's, as DBT-2 gives it: clients are terminals at which people key and think.

As in the standard: the transactions and their mix, the database, NURand, keying and think times,
and the consistency conditions. Not as there: there are no menus, deliveries are not deferred, and
people may be faster by a factor, the preset's pace.
"""

from pathlib import Path
from typing import Any, ClassVar

import msgspec
import psycopg

from wallab.bench.pgbench import RunFailed
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.bench.workloads.base import Outcome, Workload, prewarm
from wallab.machine import pagecache
from wallab.servers.cluster import Cluster

SQL = Path(__file__).parent / "tpcc_sql"
IDEAL = 12.86
"""New-Order transactions a minute and warehouse that the keying and think times allow."""
CYCLE_S = 21.02
"""Mean keying and think time of the mix, in seconds."""


class Kind(msgspec.Struct, frozen=True):
    """A transaction: its share of the mix in percent, and people's times in seconds (5.2.5.7)."""

    weight: int
    keying: int
    thinking: int
    call: str


KINDS = {
    "new_order": Kind(45, 18, 12, "tpcc.new_order(:w, :warehouses)"),
    "payment": Kind(43, 3, 12, "tpcc.payment(:w, :warehouses)"),
    "order_status": Kind(4, 2, 10, "tpcc.order_status(:w)"),
    "delivery": Kind(4, 2, 5, "tpcc.delivery(:w)"),
    "stock_level": Kind(4, 2, 5, "tpcc.stock_level(:w)"),
}


def script(name: str, pace: int) -> str:
    """Return pgbench's script of a transaction; people are so many times faster."""
    kind = KINDS[name]
    mean_us = kind.thinking * 1_000_000 // pace
    # The exponential distribution, cut off at ten times the mean, is clause 5.2.5.4's.
    return f"""\\set w :client_id % :warehouses + 1
\\set think random_exponential(0, {10 * mean_us}, 10.0)
\\sleep {kind.keying * 1_000_000 // pace} us
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS begun \\gset
SELECT {kind.call};
SELECT tpcc.answered('{name}', :begun);
\\sleep :think us
"""  # noqa: S608 - nothing in it comes from outside


class Tpcc(Workload):
    """The scale is the number of warehouses."""

    checked: ClassVar[bool] = True

    def load(self, server: Path, cluster: Cluster, scale: int) -> None:
        with cluster.connect() as connection:
            for name in ("schema", "load", "transactions"):
                text = (SQL / f"{name}.sql").read_text()
                connection.execute(text.replace("{warehouses}", str(scale)).encode())
            connection.execute("VACUUM ANALYZE")

    def fill_memory(self, stage: Stage) -> None:
        """Read the warehouses."""
        prewarm(stage, "tpcc")

    def script(self, stage: Stage) -> list[str]:
        """Write a script for each transaction where the clients may read it."""
        arguments = ["-D", f"warehouses={stage.conditions.scale}"]
        for name, kind in KINDS.items():
            file = stage.cluster.log.with_name(f"{name}.sql")
            file.write_text(script(name, stage.preset.pace))
            file.chmod(0o644)
            arguments += ["-f", f"{file}@{kind.weight}"]
        return arguments

    def measure(self, stage: Stage, runner: Runner) -> Outcome:
        with stage.cluster.connect() as connection:
            connection.execute("TRUNCATE tpcc.answer")
        outcome = super().measure(stage, runner)
        with stage.cluster.connect() as connection:
            figures = answers(connection, stage.preset.seconds, CYCLE_S / stage.preset.pace)
            archived = connection.execute(
                "SELECT archived_count, failed_count FROM pg_stat_archiver"
            ).fetchone()
        assert archived is not None
        ideal = IDEAL * stage.conditions.scale * stage.preset.pace
        values = {
            "tpm_ideal": ideal,
            "tpm_share": 100 * figures["tpm"] / ideal,
            "archived": float(archived[0]),
            "archive_failures": float(archived[1]),
            "archive_cached_mb": pagecache.resident(stage.archive) / 1e6,
        }
        outcome.values.update(figures | values)
        return outcome

    def check(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        if broken := inconsistencies(connection):
            conditions = ", ".join(f"{number} ({rows} rows)" for number, rows in broken.items())
            raise RunFailed(f"broken consistency conditions of TPC-C, clause 3.3.2: {conditions}")


def answers(
    connection: psycopg.Connection[tuple[Any, ...]], seconds: int | None, first_s: float
) -> dict[str, float]:
    """Return New-Orders a minute, and their 90th percentile in s if there are any.

    Of a run of so many seconds the first cycle does not count; None: of all that was answered.
    """
    row = connection.execute(
        """SELECT count(*), max(at) - min(begun),
                  percentile_disc(0.9) WITHIN GROUP (ORDER BY seconds)
           FROM tpcc.answer, (SELECT min(at) AS begun FROM tpcc.answer) first
           WHERE kind = 'new_order' AND at BETWEEN begun + %s AND begun + %s""",
        [0 if seconds is None else first_s, seconds or 1e9],
    ).fetchone()
    assert row is not None
    count, until_last, p90 = row
    if not count:
        return {"tpm": 0.0}
    span = float(until_last) if seconds is None else seconds - first_s
    return {"tpm": count * 60 / span if span else 0.0, "p90_s": float(p90)}


def inconsistencies(connection: psycopg.Connection[tuple[Any, ...]]) -> dict[int, int]:
    """Return the consistency conditions that are broken -> how many rows break them."""
    rows = connection.execute((SQL / "consistency.sql").read_bytes()).fetchall()
    return {number: count for number, count in rows if count}
