"""Rounds hold every cell once, and the seed decides the order."""

from wallab import schedule

CELLS = [{"variant": str(number)} for number in range(20)]


def test_every_cell_once_a_round() -> None:
    for one in schedule.rounds(CELLS, 5, 1):
        assert sorted(one, key=lambda cell: int(cell["variant"])) == CELLS


def test_seed_decides_the_order() -> None:
    assert schedule.rounds(CELLS, 3, 7) == schedule.rounds(CELLS, 3, 7)
    assert schedule.rounds(CELLS, 3, 7) != schedule.rounds(CELLS, 3, 8)
    first, second, _ = schedule.rounds(CELLS, 3, 7)
    assert first != second
