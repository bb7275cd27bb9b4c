"""How long the phases of a sample or of a power cut take."""

import contextlib
import time
from collections.abc import Iterator


class Phases:
    """Phase -> seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase, also one that fails; a second one of that name adds to the first."""
        begun = time.monotonic()
        try:
            yield
        finally:
            spent = time.monotonic() - begun
            self.seconds[name] = round(self.seconds.get(name, 0.0) + spent, 3)
