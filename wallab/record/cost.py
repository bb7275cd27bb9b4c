"""What a run cost beside pgbench's measured time, and what it saved by stopping when precise."""

from collections.abc import Sequence

import msgspec

from wallab.duration import duration
from wallab.record.experiment import Cell
from wallab.record.number import Count, Figure, Seconds
from wallab.record.samples import Sample


class StoppedEarly(msgspec.Struct, frozen=True):
    """A cell that was precise enough before the rounds were used up."""

    cell: Cell
    control: bool
    rounds: Count
    """How many it took."""
    saved_seconds: Seconds
    """What its other rounds would have taken, by the mean of those measured."""


class Session(msgspec.Struct, frozen=True):
    """An uninterrupted part of a run."""

    started: str
    """UTC."""
    seconds: Seconds
    """From the making of the test bed on."""
    ended: str = ""
    """“complete”, “out of time” or “interrupted”; nothing if it was killed."""


class Cost(msgspec.Struct, frozen=True):
    """Where a run's time went, in seconds."""

    measured: Seconds
    """What pgbench measured: transactions by TPS."""
    phases: dict[str, Figure]
    """Everything else, by phase: template (once a session), restore, start, read, warm_up,
    checkpoint, count, measure (pgbench's own start and end), stop, and other (recording, and what
    a kill cut short)."""
    overhead: Figure
    """All phases as a share of the measured time; 0.15 is 15%."""
    stopped: tuple[StoppedEarly, ...]
    """The cells that were precise enough before their rounds were used up."""
    saved: Seconds
    """What their other rounds would have taken."""


def words(cost: Cost) -> str:
    """Say in a line what was measured, and what all else took."""
    phases = ", ".join(
        f"{name.replace('_', '-')} {duration(seconds)}"
        for name, seconds in sorted(cost.phases.items(), key=lambda phase: -phase[1])
        if seconds >= 1
    )
    return (
        f"pgbench measured for {duration(cost.measured)}; all else took {cost.overhead:.0%} of that"
        + (f": {phases}" if phases else "")
    )


def of(
    samples: Sequence[Sample],
    sessions: Sequence[Session],
    template: float,
    stopped: Sequence[StoppedEarly],
) -> Cost:
    """Sum up all samples; `template` is what making the bed took in all sessions."""
    measured = sum(sample.figures.seconds for sample in samples if sample.figures)
    phases: dict[str, float] = {"template": template}
    for sample in samples:
        for name, seconds in sample.phases.items():
            phases[name] = phases.get(name, 0.0) + seconds
    phases["measure"] = phases.get("measure", 0.0) - measured
    spent = sum(session.seconds for session in sessions)
    phases["other"] = max(0.0, spent - measured - sum(phases.values()))
    return Cost(
        measured=round(measured, 1),
        phases={name: round(seconds, 1) for name, seconds in phases.items()},
        overhead=round(sum(phases.values()) / measured, 4) if measured else 0.0,
        stopped=tuple(stopped),
        saved=round(sum(cell.saved_seconds for cell in stopped), 1),
    )
