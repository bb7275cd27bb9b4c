"""In which order cells are measured: rounds of all cells, each shuffled, from a recorded seed."""

import random

from wallab.matrix import Cell


def rounds(cells: list[Cell], count: int, seed: int) -> list[list[Cell]]:
    """Return so many rounds; each holds every cell once, shuffled. Same seed, same order."""
    shuffler = random.Random(seed)  # noqa: S311
    return [shuffler.sample(cells, len(cells)) for _ in range(count)]
