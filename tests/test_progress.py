"""Progress: all that it has to say, on a narrow terminal and where there is none."""

import io

import pytest
from rich.console import Console

from wallab import progress
from wallab.progress import Work

TITLE = "thread, quick: up to 123 samples in 3 rounds"
NOTE = "round 2: direct-io on-unflushed open_datasync, 609.0 ± 354.6 TPS so far"


def test_a_narrow_terminal_shows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    narrow = Console(file=screen, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "console", lambda: narrow)
    with Work(TITLE) as work:
        work.update(0.42, NOTE, 400)
        work.line("round 2: both off fsync failed: no space")
    drawn = screen.getvalue()
    for part in (TITLE, " 42%", "6 min 40 s left", NOTE, "failed: no space", "done in"):
        assert part in drawn


def test_without_a_terminal_lines_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL", 0.0)
    with Work(TITLE) as work:
        work.update(0.42, NOTE, 400)
    begun, update, ended = capsys.readouterr().err.splitlines()
    assert begun == f"{TITLE} …"
    assert update == f"{TITLE}:  42%, 6 min 40 s left {NOTE}"
    assert ended.startswith(f"{TITLE}: done in ")
