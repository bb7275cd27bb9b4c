"""What the clients do: pgbench, its loading, its runs and what it reports."""

import contextlib
import itertools
import re
import subprocess
from pathlib import Path

import msgspec

from wallab.bench import transactionlog
from wallab.files import foreign
from wallab.files.foreign import Refused
from wallab.machine import process
from wallab.record.measured import Latency, Measured, ScheduleLag
from wallab.servers.cluster import Cluster


class RunFailed(Exception):
    """pgbench ended with an error."""


class NothingDone(RunFailed):
    """pgbench's time was over before a single transaction had ended."""


_FIGURES = {
    "tps": r"^tps = ([\d.]+) \(without initial connection time\)",
    "transactions": r"^number of transactions actually processed: (\d+)",
    "failed": r"^number of failed transactions: (\d+)",
    "latency_ms": r"^latency average = ([\d.]+) ms",
    "connecting_ms": r"^initial connection time = ([\d.]+) ms",
}

_LAG = r"^rate limit schedule lag: avg ([\d.]+) \(max ([\d.]+)\) ms"


def parse(report: str) -> Measured:
    """Read pgbench's report (14 and later); RunFailed if a figure is missing."""
    values: dict[str, float] = {"failed": 0.0}
    # Without any, pgbench leaves the figures out.
    if (done := re.search(_FIGURES["transactions"], report, re.MULTILINE)) and int(done[1]) == 0:
        raise NothingDone("no transaction ended in the time that pgbench had")
    for name, pattern in _FIGURES.items():
        if match := re.search(pattern, report, re.MULTILINE):
            values[name] = float(match[1])
        elif name not in values:
            raise RunFailed(f"pgbench's report has no {name}: {report.strip()[-300:]}")
    figures = msgspec.convert(
        values | {name: int(values[name]) for name in ("transactions", "failed")}, Measured
    )
    if late := re.search(_LAG, report, re.MULTILINE):
        lag = ScheduleLag(float(late[1]), float(late[2]))
        figures = msgspec.structs.replace(figures, lag=lag)
    return figures


def without_rest(figures: Measured, think_ms: int) -> Measured:
    """Return the figures with latencies in which the clients' rest before each is not."""
    if not think_ms:
        return figures
    course = figures.course
    if course:
        latency = Latency(
            *(
                max(0.0, round(ms - think_ms, 3))
                for ms in msgspec.structs.astuple(course.latency_ms)
            )
        )
        course = msgspec.structs.replace(course, latency_ms=latency)
    mean = max(0.0, round(figures.latency_ms - think_ms, 3))
    return msgspec.structs.replace(figures, latency_ms=mean, course=course)


class Pgbench:
    """The pgbench of an installed server, connected to a running one."""

    def __init__(self, server: Path, cluster: Cluster) -> None:
        self._program = server / "bin" / "pgbench"
        self._confinement = cluster.confinement
        self._places = cluster.clients_places(server)
        self._environment = {
            "PGHOST": str(cluster.socket),
            "PGUSER": "postgres",
            "PGDATABASE": "postgres",
        }

    def start(
        self, *arguments: str, cpus: int | None = None, skipped: int = 0
    ) -> subprocess.Popen[bytes]:
        """Start pgbench, on so many CPUs after those skipped; its output goes to pipes.

        End it as what the cluster's confinement starts.
        """
        return self._confinement.spawn(
            process.pinned([self._program, *arguments], cpus, skipped),
            self._places,
            environment=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def version(self) -> str:
        """Return the program's word about itself, such as “pgbench (PostgreSQL) 18.6”."""
        child = self.start("--version")
        output, _ = child.communicate()
        return output.decode(errors="replace").strip()

    def builtin(self, name: str) -> str:
        """Return the built-in script of that name; RunFailed if it tells none."""
        child = self.start(f"--show-script={name}")
        _, script = child.communicate()
        if child.returncode or not script.strip():
            raise RunFailed(f"pgbench does not show its script {name}")
        return script.decode(errors="replace")

    def load(self, scale: int) -> None:
        """Create and fill pgbench's tables; LabError if that fails."""
        command: list[str | Path] = [self._program, "-i", "-q", "-s", str(scale)]
        self._confinement.must_run(command, self._places, "pgbench -i", self._environment)

    @staticmethod
    def arguments(
        script: list[str],
        clients: int,
        *,
        threads: int = 1,
        seconds: int | None = None,
        transactions: int | None = None,
        log: Path | None = None,
        seed: int | None = None,
        rate: int | None = None,
    ) -> list[str]:
        """Return the arguments of a run: so many seconds, or transactions for each client.

        One thread, as pgbench of 2005 had, unless there is reason for more. With `log`, pgbench
        logs each transaction to files of that name and its process number. With `rate`, so many
        begin a second.
        """
        amount = ["-T", str(seconds)] if seconds is not None else ["-t", str(transactions)]
        logged = ["-l", f"--log-prefix={log}"] if log else []
        seeded = [] if seed is None else [f"--random-seed={seed}"]
        paced = [] if rate is None else ["-R", str(rate)]
        load = ["-c", str(clients), "-j", str(threads), *amount, *paced]
        return ["-n", *script, *load, *logged, *seeded]

    @staticmethod
    def finish(
        child: subprocess.Popen[bytes], log: Path | None = None, patience: float | None = None
    ) -> Measured:
        """Wait for a run and return its figures; RunFailed if it ended with an error.

        Also if it has not ended within the patience (s), if there is a limit. With `log`, as given
        to `arguments`, they include the course of the run; the log is read and removed.
        """
        try:
            output, errors = child.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            raise RunFailed("pgbench does not end: the server answers no more") from None
        if child.returncode:
            message = errors.decode(errors="replace").strip()
            raise RunFailed(f"pgbench exited with {child.returncode}: {message[-500:]}")
        figures = parse(output.decode(errors="replace"))
        if log is None:
            return figures
        # Behind the name comes its process's number, as it is known to itself, and its threads'.
        files = sorted(log.parent.glob(f"{log.name}.*"))
        try:
            with contextlib.ExitStack() as stack:
                owner = process.server_owner()
                opened = [stack.enter_context(foreign.open_file(file, owner)) for file in files]
                course = transactionlog.read(itertools.chain(*opened))
        except (OSError, Refused, ValueError) as error:
            raise RunFailed(f"pgbench left no log of its transactions: {error}") from None
        finally:
            for file in files:
                with contextlib.suppress(OSError):  # a folder goes with the one that it is in
                    file.unlink()
        if not files:
            raise RunFailed("pgbench left no log of its transactions")
        return msgspec.structs.replace(figures, course=course)
