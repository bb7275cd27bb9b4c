"""What a run has its samples taken by: the one place that another way of it has to implement."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol

from wallab.bench.schedule import Pending
from wallab.record.samples import Sample


class Engine(Protocol):
    """Takes samples, maybe several at a time; within a `with`, on a bed that is open."""

    @property
    def words(self) -> str:
        """Who has taken how many so far, for people; nothing if that is no question."""

    def __enter__(self) -> "Engine":
        """Begin; MachineError where that cannot be."""

    def sample(self, pending: Callable[[], Iterable[Pending]]) -> Sample:
        """Return the sample of what is pending first; what comes after may be begun."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End what is still under way."""
