"""Samples taken several at a time, in the order of the schedule all the same."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType

from wallab.bench.bed import Bed
from wallab.bench.schedule import Pending
from wallab.record.samples import Sample


class Ahead:
    """Takes what is pending before it is asked for, on a bed whose samples disturb none.

    What the stopping rule then does without is thrown away, so that the samples of a run do not
    depend on how many are taken at a time.
    """

    def __init__(self, bed: Bed, jobs: int) -> None:
        self._bed = bed
        self._jobs = jobs
        self._pool = ThreadPoolExecutor(jobs) if jobs > 1 else None
        self._taken: dict[tuple[object, ...], Future[Sample]] = {}

    def __enter__(self) -> "Ahead":
        return self

    @property
    def words(self) -> str:
        """Say nothing: it is all done here."""
        return ""

    def sample(self, pending: Callable[[], Iterable[Pending]]) -> Sample:
        """Return the sample of what is pending first."""
        if self._pool is None:
            return self._take(next(iter(pending())))
        coming = list(islice(pending(), 2 * self._jobs))
        for turn in coming:
            if _key(turn) not in self._taken:
                self._taken[_key(turn)] = self._pool.submit(self._take, turn)
        return self._taken.pop(_key(coming[0])).result()

    def _take(self, pending: Pending) -> Sample:
        number, position, turn = pending
        return self._bed.sample(turn.cell, number, position, control=turn.control)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            # What still runs is of no use: its bed ends it.
            for future in self._taken.values():
                future.cancel()
            self._bed.close()
            self._pool.shutdown(cancel_futures=True)


def _key(pending: Pending) -> tuple[object, ...]:
    return (pending[0], *pending[2].key)
