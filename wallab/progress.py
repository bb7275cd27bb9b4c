"""Progress of long work on standard error: a live bar on a terminal, else plain lines."""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from wallab.duration import duration

PLAIN_INTERVAL = 15.0
"""Seconds between two plain lines about the same work."""


def console() -> Console:
    """The console on standard error."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def say(text: str) -> None:
    """Print one line on standard error."""
    console().print(text)


class _Lines(Progress):
    """A piece of work in three lines, so that a narrow terminal has room for each."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield what is in hand below the bar."""
        for task in self.tasks:
            yield Text(task.description, no_wrap=True, overflow="ellipsis")
            yield self.make_tasks_table([task])
            yield Text(task.fields["note"], no_wrap=True, overflow="ellipsis")


class Work(AbstractContextManager["Work"]):
    """One piece of long work, with a share done, a word on what is in hand and the time left."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._begun = time.monotonic()
        self._printed = self._begun
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> "Work":
        target = console()
        if target.is_terminal:
            self._bar = _Lines(
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=target,
                transient=True,
            )
            self._task = self._bar.add_task(self.title, total=1.0, note="", left="")
            self._bar.start()
        else:
            print(f"{self.title} …", file=sys.stderr, flush=True)
        return self

    def update(self, share: float, note: str = "", left: float | None = None) -> None:
        """Report the share done (0 to 1); the seconds left are extrapolated unless given."""
        now = time.monotonic()
        if left is None and share > 0.01:
            left = (now - self._begun) * (1 - share) / share
        remaining = f"{duration(left)} left" if left is not None else ""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=share, note=note, left=remaining)
        elif now - self._printed >= PLAIN_INTERVAL:
            self._printed = now
            print(
                f"{self.title}: {share:4.0%}, {remaining} {note}".rstrip(),
                file=sys.stderr,
                flush=True,
            )

    def line(self, text: str) -> None:
        """Print a line that stays."""
        if self._bar is not None:
            self._bar.console.print(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        how = "done in" if kind is None else "stopped after"
        self.line(f"{self.title}: {how} {duration(time.monotonic() - self._begun)}")
