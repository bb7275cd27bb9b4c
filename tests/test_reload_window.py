"""What benchmarks/reload_window.py concludes from what a drive was sent, and when."""

import pytest

from benchmarks.reload_window import PAGE, Answer, judge, segment_name

BEGIN = 3 * PAGE
MS = 1_000_000


def answer(at_ms: int, page: int) -> Answer:
    """At that moment the server said that so many pages, and a bit, are flushed."""
    return Answer(at_ms * MS, BEGIN + page * PAGE + 100)


def test_all_pages_up_to_what_was_told_must_have_been_written() -> None:
    written = [10 * MS, 40 * MS, 20 * MS, 21 * MS, 90 * MS]
    answers = [
        answer(5, 0),  # nothing that is whole
        answer(15, 1),
        answer(25, 4),  # the second page is missing
        answer(30, 4),
        answer(45, 4),
        answer(50, 5),  # the last one is
    ]
    trial = judge(answers, written, BEGIN, reloaded_ns=1 * MS)
    assert (trial.commits, trial.unsafe) == (6, 3)
    assert trial.longest_ms == pytest.approx(5)
    assert trial.most_kb == 3 * PAGE / 1024
    assert trial.last_ms == pytest.approx(49)


def test_nothing_is_missing_where_each_page_came_in_time() -> None:
    assert judge([answer(5, 2)], [1 * MS, 5 * MS], BEGIN, 0).unsafe == 0


def test_files_are_named_as_the_server_does() -> None:
    assert segment_name(0) == "000000010000000000000000"
    assert segment_name((1 << 32) + (16 << 20) * 10 + 5) == "00000001000000010000000A"
