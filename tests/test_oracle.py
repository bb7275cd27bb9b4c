"""The oracle of power cuts, on histories made by hand."""

import random

import pytest

from wallab.powercut.acknowledgement import Acknowledgements, Promise
from wallab.powercut.oracle import GHOST, Entry, Judgement, Recovered, judge
from wallab.powercut.shapes import entry

CUT = 1_000_000_000


def history(*promises: tuple[int, int, str, int], begun: dict[int, int]) -> Acknowledgements:
    """A log with these promises: client, sequence, stage, ms before the cut."""
    log = Acknowledgements()
    log.begun = begun
    log.promises = [
        Promise(client, sequence, "prepared" if stage == "prepared" else "committed",
                CUT - ms * 1_000_000)
        for client, sequence, stage, ms in promises
    ]  # fmt: skip
    return log


def whole(client: int, sequence: int, parts: int = 1) -> list[Entry]:
    """All rows of a transaction."""
    return [entry(client, sequence, part, parts, "multi", "body") for part in range(parts)]


def judged(
    log: Acknowledgements,
    rows: list[Entry],
    counters: dict[int, int],
    prepared: frozenset[tuple[int, int]] = frozenset(),
    asynchronous: tuple[int, ...] = (),
) -> Judgement:
    """What the oracle says."""
    return judge(log, CUT, Recovered(tuple(rows), counters, prepared), asynchronous)


def test_all_kept() -> None:
    log = history((1, 1, "committed", 9), (1, 2, "committed", 5), begun={1: 3})
    judgement = judged(log, [*whole(1, 1), *whole(1, 2, 3)], {1: 2})
    assert (judgement.category, judgement.promised, judgement.lost) == ("safe", 2, 0)


def test_unacknowledged_may_be_there() -> None:
    log = history((1, 1, "committed", 9), begun={1: 2})
    assert judged(log, [*whole(1, 1), *whole(1, 2)], {1: 2}).category == "safe"
    assert judged(log, whole(1, 1), {1: 1}).category == "safe"


def test_lost_says_how_many_and_how_old() -> None:
    log = history((1, 1, "committed", 9), (1, 2, "committed", 5), (1, 3, "committed", 1),
                  begun={1: 3})  # fmt: skip
    judgement = judged(log, whole(1, 1), {1: 1})
    assert (judgement.category, judgement.lost, judgement.oldest_ms) == ("lost", 2, 5.0)


def test_promise_from_after_the_cut_counts_for_nothing() -> None:
    log = history((1, 1, "committed", 9), (1, 2, "committed", -1), begun={1: 2})
    assert judged(log, whole(1, 1), {1: 1}).category == "safe"


def test_prepared_is_a_promise_until_it_is_committed() -> None:
    log = history((1, 1, "prepared", 4), begun={1: 1})
    assert judged(log, [], {}, frozenset({(1, 1)})).category == "safe"
    assert judged(log, whole(1, 1), {1: 1}).category == "safe"
    assert judged(log, [], {}).category == "lost"
    committed = history((1, 1, "prepared", 4), (1, 1, "committed", 2), begun={1: 1})
    judgement = judged(committed, [], {}, frozenset({(1, 1)}))
    assert (judgement.category, judgement.lost, judgement.promised) == ("lost", 1, 1)


def test_prepared_and_committed_at_once_is_broken() -> None:
    log = history(begun={1: 1})
    assert judged(log, whole(1, 1), {1: 1}, frozenset({(1, 1)})).category == "corrupted"


def test_asynchronous_may_be_lost_from_the_end_only() -> None:
    log = history(*((5, n, "committed", 9 - n) for n in (1, 2, 3)), begun={5: 3})
    assert judged(log, whole(5, 1), {5: 1}, asynchronous=(5,)).category == "safe"
    judgement = judged(log, [*whole(5, 1), *whole(5, 3)], {5: 3}, asynchronous=(5,))
    assert judgement.category == "corrupted"
    assert "transaction 2 is missing" in judgement.broken[0]
    judgement = judged(log, [*whole(5, 2), *whole(5, 3)], {5: 3}, asynchronous=(5,))
    assert judgement.category == "corrupted"
    assert "transaction 1 is missing" in judgement.broken[0]


@pytest.mark.parametrize(
    ("rows", "counter", "words"),
    [
        (whole(1, 1, 3)[:2], 1, "2 rows of 3"),
        (whole(1, 1, 3)[1:], 1, "2 rows of 3"),
        ([*whole(1, 1), *whole(1, 1)], 1, "2 rows of 1"),
        ([*whole(1, 1), entry(1, 1, GHOST, 1, "savepoints", "x")], 1, "rolled back"),
        ([Entry(1, 1, 0, 1, "single", "body", "wrong")], 1, "not as it was written"),
        (whole(1, 1), 0, "its counter says 0"),
        (whole(1, 1), 2, "its counter says 2"),
        ([*whole(1, 1), *whole(1, 2), *whole(1, 3)], 3, "nobody wrote it"),
        ([*whole(1, 1), *whole(7, 1)], 1, "client 7, transaction 1: nobody wrote it"),
    ],
)
def test_broken(rows: list[Entry], counter: int, words: str) -> None:
    judgement = judged(history(begun={1: 2}), rows, {1: counter, 7: 1})
    assert judgement.category == "corrupted"
    assert any(words in account for account in judgement.broken), judgement.broken


def test_every_single_loss_is_seen() -> None:
    """Take any one row, or a whole transaction, out of a kept history: it never stays safe."""
    chance = random.Random(5)
    for _ in range(200):
        sizes = [chance.randint(1, 4) for _ in range(chance.randint(1, 6))]
        log = history(
            *((1, n, "committed", 50 - n) for n in range(1, len(sizes) + 1)),
            begun={1: len(sizes)},
        )
        rows = [row for n, size in enumerate(sizes, 1) for row in whole(1, n, size)]
        assert judged(log, rows, {1: len(sizes)}).category == "safe"
        gone = chance.choice(rows)
        less = [row for row in rows if row is not gone]
        assert judged(log, less, {1: len(sizes)}).category != "safe"
        without = [row for row in rows if row.sequence != gone.sequence]
        counter = max((row.sequence for row in without), default=0)
        assert judged(log, without, {1: counter}).category != "safe"
