"""Samples taken by a fleet, and returned in the order of the schedule all the same.

What is done is known from the run's own file, and what is under way from here: the scheduler may
forget everything at any time, and is told again.
"""

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from itertools import islice
from types import TracebackType
from typing import Any, Protocol

import msgspec
from distributed import Client, Future, as_completed
from distributed.scheduler import KilledWorker, NoWorkerError
from distributed.utils import LoopRunner

from wallab.bench.schedule import Pending
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.fleet import dasksettings, tasks
from wallab.fleet.company import Busy
from wallab.fleet.contact import Contact
from wallab.fleet.desk import Desk
from wallab.fleet.reply import Reply
from wallab.progress import say
from wallab.record.samples import Sample

Key = tuple[object, ...]

DEATHS = 3
"""After so many a sample has failed."""

_ALONE = 2
"""After so many it is taken alone, and only a death that it was alone at counts, so that none fails
by its neighbours'."""
_SPARE = 8
"""Tasks beyond two for each thread, so that Dask queues them, and a host that joins finds some."""
_LOOK_S = 0.02
_COUNT_S = 2.0
_CONNECT_S = 20.0
_SILENCE_S = 30.0
"""Seconds until the user hears again that there is nobody to take a sample."""


class Source(Protocol):
    """What the samples are of: turns as bytes for `tasks.measure`, and its replies as samples."""

    def task(self, pending: Pending) -> tuple[bytes, bytes]:
        """Return setup and order."""

    def sample(self, pending: Pending, reply: Reply) -> Sample:
        """Return what was measured; MachineError if nothing was."""


class _Asked(msgspec.Struct):
    """A sample that was asked for and is not there."""

    pending: Pending
    number: int
    """Since the beginning: what was asked for earlier is taken earlier."""
    deaths: int = 0
    future: Any = None


class Fleet:
    """Has samples taken by the workers of a scheduler, some ahead of the stopping rule.

    What that then does without is thrown away, so that the samples of a run do not depend on who
    takes them.
    """

    def __init__(
        self,
        contact: Contact,
        source: Source,
        desk: Desk,
        measure: Callable[[bytes, bytes, str, str], bytes] = tasks.measure,
    ) -> None:
        """`measure` is named to workers, not sent."""
        dasksettings.apply()
        self._contact = contact
        self._security = dasksettings.security(contact)
        self._source = source
        self._desk = desk
        self._measure = measure
        self._runner = LoopRunner()
        self._client: Client | None = None
        self._asked: dict[Key, _Asked] = {}
        self._flying: dict[str, Key] = {}
        self._done: dict[Key, Sample | MachineError] = {}
        self._count = 0
        self._widest = 0
        self._threads = 0
        self._counted = self._told = 0.0
        self._said: set[str] = set()
        self.hosts: Counter[str] = Counter()
        """Host -> samples that it has taken."""

    def __enter__(self) -> "Fleet":
        """Find the scheduler; MachineError if it is not there."""
        self._runner.start()
        try:
            self._connect()
            self._home = self._runner.run_sync(
                self._desk.begin, self._contact.address, self._security
            )
        except OSError as error:
            self._runner.stop()
            raise MachineError(
                f"there is no scheduler at {self._contact.address} that takes this key "
                f"({error}); scripts/scheduler is one"
            ) from None
        return self

    @property
    def words(self) -> str:
        """Who has taken how many, for people."""
        hosts = [f"{host} {count}" for host, count in self.hosts.most_common(4)]
        more = [f"{len(self.hosts) - 4} more hosts"] if len(self.hosts) > 4 else []
        return f" ({', '.join([*hosts, *more])})" if hosts else ""

    def sample(self, pending: Callable[[], Iterable[Pending]]) -> Sample:
        """Return the sample of what is pending first."""
        first = _key(next(iter(pending())))
        self._ask(pending)
        while (done := self._done.pop(first, None)) is None:
            self._look()
            self._ask(pending)
        if isinstance(done, MachineError):
            raise done
        return done

    def _ask(self, pending: Callable[[], Iterable[Pending]]) -> None:
        """Ask for what is pending, once there is room for a good part of the window."""
        window = 2 * self._threads + _SPARE
        self._widest = max(self._widest, window)
        if 4 * (len(self._asked) + len(self._done)) > 3 * window:
            return
        coming = {_key(item): item for item in islice(pending(), self._widest)}
        for key in [key for key in (*self._asked, *self._done) if key not in coming]:
            self._forget(key)
        for key, item in coming.items():
            if len(self._asked) + len(self._done) >= window:
                break
            if key not in self._asked and key not in self._done:
                self._count += 1
                self._asked[key] = _Asked(item, self._count)
                self._send(key)

    def _forget(self, key: Key) -> None:
        self._done.pop(key, None)
        asked = self._asked.pop(key, None)
        if asked:
            self._flying.pop(asked.future.key, None)
            asked.future.cancel()

    # --- the scheduler ----------------------------------------------------------------------

    def _connect(self) -> None:
        self._client = Client(
            self._contact.address, security=self._security, timeout=_CONNECT_S,
            set_as_default=False, loop=self._runner.loop,
        )  # fmt: skip
        self._finished = as_completed(loop=self._runner.loop)
        self._run = secrets.token_hex(4)
        self._counted = 0.0

    def _send(self, key: Key) -> None:
        asked = self._asked[key]
        setup, order = self._source.task(asked.pending)
        assert self._client is not None
        task = f"sample-{self._run}-{secrets.token_hex(8)}"
        asked.future = self._client.submit(
            self._measure, setup, order, self._home, task if asked.deaths >= _ALONE else "",
            key=task, pure=False, priority=-asked.number,
        )  # fmt: skip
        self._flying[asked.future.key] = key
        self._finished.add(asked.future)

    def _again(self) -> None:
        """Find the scheduler again, however long that takes, and tell it what is under way."""
        say("the scheduler is lost; what is under way is asked for again once it is back")
        while True:
            self._disconnect()
            try:
                self._connect()
                break
            except OSError:
                time.sleep(1)
        self._flying.clear()
        for key in self._asked:
            self._send(key)

    def _disconnect(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            # Futures that go later are none of the next client's.
            client.close(timeout=2)

    # --- replies ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Take what has come; wait a moment if nothing has."""
        assert self._client is not None
        if self._client.status != "running":
            return self._again()
        self._count_threads()
        batch = self._finished.next_batch(block=False)
        if not batch:
            time.sleep(_LOOK_S)
        for future, result in self._results(batch):
            if isinstance(result, CancelledError):
                return self._again()
            if (key := self._flying.pop(str(future.key), None)) is not None:
                self._take(key, result)
        return None

    def _results(self, batch: list[Future[bytes]]) -> list[tuple[Future[bytes], Any]]:
        """Fetch the results of what is finished, or what was raised instead.

        Not by as_completed, which forgets a future whose result went with its worker.
        """
        assert self._client is not None
        batch = [future for future in batch if future.key in self._flying]
        if all(future.status == "finished" for future in batch):
            with contextlib.suppress(Exception):
                return list(zip(batch, self._client.gather(batch), strict=True))
        return [(future, _result(future)) for future in batch]

    def threads(self) -> int:
        """Return how many samples the workers take at a time; OSError if nobody answers."""
        assert self._client is not None
        return int(self._client.scheduler_info(n_workers=0)["total_threads"])

    def _count_threads(self) -> None:
        now = time.monotonic()
        if now - self._counted < _COUNT_S:
            return
        self._counted = now
        try:
            self._threads = self.threads()
        except (OSError, TimeoutError):
            return  # its status tells
        if not self._threads and now - self._told > _SILENCE_S:
            self._told = now
            say(f"no worker yet; on each host: scripts/worker {self._contact.address}")

    def _take(self, key: Key, result: Any) -> None:
        """Make of a result what it is: a sample, or something to be tried again."""
        if isinstance(result, KilledWorker):
            died = f"the worker {result.last_worker.name} died while it took it"
            self._died(key, died)
        elif isinstance(result, Busy):
            self._send(key)
        elif isinstance(result, NoWorkerError | OSError | TimeoutError):
            # Nobody was there for long, or the network failed.
            self._say_once(str(result))
            self._send(key)
        elif isinstance(result, Exception):
            raise result
        else:
            self._heard(key, jsonfile.loads(result, Reply))

    def _heard(self, key: Key, reply: Reply) -> None:
        asked = self._asked[key]
        if reply.state == "unfit":
            self._say_once(f"{reply.host} leaves the fleet: {reply.reason}")
            self._send(key)
        elif reply.state == "died":
            self._died(key, f"{reply.reason}, on {reply.host}")
        elif reply.state == "failed":
            self._settle(key, MachineError(reply.reason))
        else:
            self.hosts[reply.host] += 1
            self._settle(key, self._source.sample(asked.pending, reply))

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)

    def _died(self, key: Key, reason: str) -> None:
        asked = self._asked[key]
        alone = asked.future.key in self._desk.alone
        self._desk.alone.discard(asked.future.key)
        if alone or asked.deaths < _ALONE:
            asked.deaths += 1
        if asked.deaths < DEATHS:
            self._send(key)
            return
        number, position, turn = asked.pending
        failed = Sample(
            cell=turn.cell, round=number, position=position, started="", state="failed",
            error=f"given up after {asked.deaths} deaths: {reason}",
        )  # fmt: skip
        self._settle(key, failed)

    def _settle(self, key: Key, done: Sample | MachineError) -> None:
        del self._asked[key]
        self._done[key] = done

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What still runs is of no use: with its client, the scheduler forgets it.
        self._disconnect()
        self._runner.run_sync(self._desk.close)
        self._runner.stop()


def _key(pending: Pending) -> Key:
    return (pending[0], *pending[2].key)


def _result(future: Future[bytes]) -> Any:
    try:
        return future.result()
    except Exception as error:
        return error
