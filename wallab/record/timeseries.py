"""A figure over time, as a gauge showed it again and again while a sample was measured."""

import msgspec

from wallab.record.number import Figure, Seconds

FULL = 0.99
"""What reaches this share of its limit counts as full."""


class TimeSeries(msgspec.Struct, frozen=True):
    """A figure over time."""

    seconds: tuple[Seconds, ...]
    """Since the measuring began."""
    figures: tuple[Figure, ...]
    """In the gauge's unit; as many as seconds."""
    limit: Figure | None = None
    """The most that there could be, if that is known."""

    def __post_init__(self) -> None:
        """ValueError unless there is a figure, and each has its second."""
        if not self.seconds or len(self.seconds) != len(self.figures):
            raise ValueError("Expected as many `figures` as `seconds`, and at least one")

    @property
    def full_after(self) -> float | None:
        """The second in which the limit was reached; None if it was not."""
        if self.limit is None:
            return None
        full = FULL * self.limit
        looks = zip(self.seconds, self.figures, strict=True)
        return next((second for second, figure in looks if figure >= full), None)
