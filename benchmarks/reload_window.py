#!/usr/bin/env python3
"""How often acknowledged WAL is not synced after a reload of wal_sync_method, at default settings.

usage: .venv/bin/python benchmarks/reload_window.py [INSTALLED-SERVER] [--trials N] [--from METHOD]
           [--to METHOD] [--clients N] [--pause MS] [--profile NAME]
           [--set NAME=VALUE]…

Needs root. In each trial a long INSERT … SELECT is under way and clients commit, when the method is
changed. From then on each client asks after each commit up to where the server says that WAL is
flushed. Afterwards the drive's trace tells of each such moment whether every page up to there had
been written to the drive, whose cache is off: if one had not, a power failure at that moment would
have taken what had been acknowledged. Nothing is cut. A page that was written before it was full
counts as written, so the true figures are higher.

Clients commit without a pause, or with one of so many ms before each commit. The server has the
settings that it comes with, but for what --set says. With --to the same as --from, or with the
variant reload-sync, the count must be 0.
"""

import argparse
import array
import bisect
import contextlib
import fcntl
import os
import statistics
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg

from wallab.drives import trace
from wallab.drives.simulated import SimulatedDrive
from wallab.errors import LabError
from wallab.machine import ledger, mounts, serversandbox
from wallab.machine.ledger import Ledger
from wallab.powercut import method
from wallab.powercut.bed import ask
from wallab.servers.cluster import Cluster

PAGE = 8192
SECTOR = 512
SEGMENT = 16 << 20
DRIVE_BYTES = {"wal": 3 << 30, "data": 3 << 30}

BEFORE_S = 2.0
"""From the beginning of the statement to the reload."""
AFTER_S = 5.0
"""For which commits are looked at then, if the statement lasts as long."""

STATEMENT = "INSERT INTO big SELECT i, repeat('x', 60) FROM generate_series(1, 3000000) i"
FLUSHED = "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint"

_FIEMAP = 0xC020660B
_EXTENT = struct.Struct("=QQQ2QIIII")
_MOST_EXTENTS = 512


class Answer(NamedTuple):
    """What a client heard after a commit."""

    at_ns: int
    """CLOCK_MONOTONIC."""
    flushed: int
    """Up to where the server said that WAL was flushed, in bytes."""


class Found(NamedTuple):
    """What a trial found."""

    commits: int
    """After the reload, while the statement went on."""
    unsafe: int
    """Of them, after which WAL was not on the drive that the server said was."""
    longest_ms: float
    """From the first to the last of such commits in a row, without a safe one between."""
    most_kb: float
    """From the first page that was not there up to the position that was told."""
    last_ms: float
    """After the reload, the last of them."""


def extents(file: Path) -> Iterator[tuple[int, int, int]]:
    """Yield a file's extents: offset in it, offset on the device and length, all in bytes."""
    buffer = array.array("B", bytes(32 + _MOST_EXTENTS * _EXTENT.size))
    struct.pack_into("=QQIIII", buffer, 0, 0, SEGMENT, 1, 0, _MOST_EXTENTS, 0)  # 1: sync before
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.ioctl(descriptor, _FIEMAP, buffer)
    finally:
        os.close(descriptor)
    (count,) = struct.unpack_from("=I", buffer, 20)
    for number in range(count):
        logical, physical, length, *_ = _EXTENT.unpack_from(buffer, 32 + number * _EXTENT.size)
        yield logical, physical, length


def segment_name(position: int) -> str:
    """Return the name of the file that has the position, on the first timeline."""
    number = position // SEGMENT
    return f"{1:08X}{number // 256:08X}{number % 256:08X}"


def first_written(
    requests: list[trace.TracedRequest], wal: Path, begin: int, end: int
) -> list[int]:
    """Return for each page from begin to end when the drive first had it written, in ns."""
    never = 1 << 63
    written = [never] * ((end - begin) // PAGE)
    places: list[tuple[int, int, int]] = []  # sector, sectors, position in the WAL
    for position in range(begin - begin % SEGMENT, end, SEGMENT):
        for logical, physical, length in extents(wal / segment_name(position)):
            places.append((physical // SECTOR, length // SECTOR, position + logical))
    places.sort()
    starts = [sector for sector, _, _ in places]
    for request in requests:
        if request.kind != "write" or "failed" in request.flags:
            continue
        number = max(0, bisect.bisect_right(starts, request.sector) - 1)
        for sector, sectors, position in places[number:]:
            first = max(sector, request.sector)
            last = min(sector + sectors, request.sector + request.count)
            if sector >= request.sector + request.count:
                break
            here = position + (first - sector) * SECTOR
            there = position + (last - sector) * SECTOR
            for page in range(-(-here // PAGE), there // PAGE):
                index = page - begin // PAGE
                if 0 <= index < len(written):
                    written[index] = min(written[index], request.delivered)
    return written


def judge(answers: list[Answer], written: list[int], begin: int, reloaded_ns: int) -> Found:
    """Return what the answers come to, given when each page from `begin` on was written."""
    latest: list[int] = []  # of the pages up to each, when the last of them was written
    for moment in written:
        latest.append(max(moment, latest[-1] if latest else 0))
    unsafe, longest, most, last = 0, 0.0, 0.0, 0.0
    row: list[int] = []
    for at_ns, flushed in sorted(answers):
        pages = (flushed - begin) // PAGE
        if pages <= 0 or latest[pages - 1] <= at_ns:
            row = []
            continue
        unsafe += 1
        row.append(at_ns)
        gap = bisect.bisect_right(latest, at_ns)
        longest = max(longest, (row[-1] - row[0]) / 1e6)
        most = max(most, (pages - gap) * PAGE / 1024)
        last = (at_ns - reloaded_ns) / 1e6
    return Found(len(answers), unsafe, longest, most, last)


class Bench:
    """A server with its default settings on simulated drives."""

    def __init__(self, owned: Ledger, profile: str, undo: contextlib.ExitStack) -> None:
        self.drives = {}
        for name, size in DRIVE_BYTES.items():
            self.drives[name] = SimulatedDrive(name, profile, size, "xfs", owned)
            undo.callback(self.drives[name].close)
        mounts.enter_private_namespace()
        for drive in self.drives.values():
            drive.mount()
        self.wal = self.drives["wal"].mount_point / "pg_wal"
        # Anybody's server may be named.
        confinement = serversandbox.confinement(guest=True)
        data = self.drives["data"].mount_point / "data"
        self.cluster = Cluster(data, self.wal, owned, confinement)
        undo.callback(self.cluster.stop)
        self._traces = owned.folder

    def start(self, server: Path, settings: dict[str, str]) -> None:
        """Make the cluster, and WAL files that are used again: new ones are filled with zeros."""
        self.cluster.create(server)
        self.cluster.start(server, settings)
        with self.cluster.connect() as connection:
            connection.execute("CREATE TABLE big (a int, b text); CREATE TABLE small (a int)")
            for _ in range(2):
                connection.execute(STATEMENT)
                connection.execute("TRUNCATE big")
                connection.execute("CHECKPOINT")
        for drive in self.drives.values():
            drive.timing(True)

    def trial(self, old: str, new: str, clients: int, pause_s: float) -> Found:
        """Reload once under load, and return what became of it."""
        method.change(self.cluster, old)
        with self.cluster.connect() as connection:
            connection.execute("TRUNCATE big")
            connection.execute("CHECKPOINT")
            # Every page of a trial begins in a file that is all the trial's own.
            connection.execute("SELECT pg_switch_wal()")
        drive = self.drives["wal"]
        file = self._traces / "trace"
        drive.control.ask(f"trace {file}")
        begin = int(ask(self.cluster, FLUSHED))
        begin += -begin % SEGMENT
        there = {entry.name for entry in self.wal.iterdir()}
        answers: list[Answer] = []
        over = threading.Event()
        threads = [
            threading.Thread(target=self._commit, args=(over, answers, pause_s))
            for _ in range(clients)
        ]
        for thread in threads:
            thread.start()
        long = threading.Thread(target=self._insert, args=(over,))
        long.start()
        time.sleep(BEFORE_S)
        method.change(self.cluster, new)
        reloaded_ns = time.monotonic_ns()
        over.wait(AFTER_S)
        ended_ns = time.monotonic_ns()
        over.set()
        for thread in (*threads, long):
            thread.join()
        drive.control.ask("trace off")
        kept = [answer for answer in answers if reloaded_ns < answer.at_ns < ended_ns]
        if not kept:
            raise LabError("no client committed after the reload")
        end = max(answer.flushed for answer in kept)
        end -= end % PAGE
        names = {segment_name(position) for position in range(begin, end, SEGMENT)}
        if not names <= there:
            raise LabError("the trial made new WAL files, whose zeros look like WAL")
        requests = list(trace.read(file).requests)
        return judge(kept, first_written(requests, self.wal, begin, end), begin, reloaded_ns)

    def _commit(self, over: threading.Event, answers: list[Answer], pause_s: float) -> None:
        with self.cluster.connect() as connection:
            while not over.wait(pause_s):
                connection.execute("INSERT INTO small VALUES (1)")
                row = connection.execute(FLUSHED).fetchone()
                assert row is not None
                answers.append(Answer(time.monotonic_ns(), row[0]))

    def _insert(self, over: threading.Event) -> None:
        """Run the statement, until it ends or the trial is over."""
        with self.cluster.connect() as connection:

            def cancel() -> None:
                over.wait()
                connection.cancel_safe()

            threading.Thread(target=cancel, daemon=True).start()
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                connection.execute(STATEMENT)
            over.set()


def report(outcomes: list[Found]) -> str:
    """Return the figures of all trials, as a row of Markdown."""
    hit = [trial for trial in outcomes if trial.unsafe]
    commits, unsafe = (sum(getattr(t, what) for t in outcomes) for what in ("commits", "unsafe"))
    longest = [trial.longest_ms for trial in hit] or [0.0]
    return (
        f"{len(outcomes)} | {len(hit)} | {commits} | {unsafe} ({unsafe / commits:.1%}) | "
        f"{statistics.median(longest):.0f}, {max(longest):.0f} | "
        f"{max(t.most_kb for t in outcomes):.0f} | {max(t.last_ms for t in outcomes):.0f}"
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the trials and print each, and what all come to."""
    settings = dict(setting.split("=", 1) for setting in arguments.set)
    for line in ledger.clear_dead():
        print(line, file=sys.stderr)
    with contextlib.ExitStack() as undo:
        mounts.enter_private_namespace()
        owned = Ledger.open()
        undo.callback(owned.close)
        bench = Bench(owned, arguments.profile, undo)
        bench.start(arguments.server.resolve(), settings)
        outcomes = []
        for number in range(1, arguments.trials + 1):
            trial = bench.trial(
                arguments.old, arguments.new, arguments.clients, arguments.pause / 1000
            )
            outcomes.append(trial)
            print(f"trial {number}: {trial}", flush=True)
    print(
        "\ntrials | with unsafe commits | commits | unsafe | longest in a row, ms (median, most) | "
        f"most, kB | last after, ms\n{report(outcomes)}"
    )
    return 0


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, usage=argparse.SUPPRESS)
    parser.add_argument("server", nargs="?", type=Path, default=Path("build/18.6/stock"))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--from", dest="old", default="fdatasync")
    parser.add_argument("--to", dest="new", default="open_datasync")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--profile", default="ata-2005")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main(parsed()))
    except LabError as error:
        sys.exit(str(error))
