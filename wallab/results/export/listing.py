"""index.html: all runs on one sortable page that needs no network."""

from collections.abc import Sequence

from wallab.results.entry import Damaged, Entry
from wallab.results.export import webpage

MARK = "wal-lab index"
"""By which the page is known to be the lab's, so that it may be replaced."""


def render(entries: Sequence[Entry], damaged: Sequence[Damaged]) -> str:
    """Return the page."""
    return webpage.render(
        "index.html",
        ("sort.js", "index.js"),
        entries=entries,
        damaged=damaged,
        mark=MARK,
    )
