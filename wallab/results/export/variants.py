"""A run's variants beside those that they are compared with, a line a cell."""

from wallab.record.values import VALUES
from wallab.results.export import ratios
from wallab.results.table import axis_title
from wallab.results.within import VariantPair, Within

BY = "by"
"""The heading of the variant that another one is compared with."""


def title(within: Within) -> str:
    """Return the heading of all of it."""
    return f"{VALUES[within.value].title} of each variant by that of its base"


def heads(within: Within) -> list[str]:
    """Return the headings: the axes, the other variant beside the variant's, and the ratio's."""
    return [*_with_base(within, list(map(axis_title, within.axes)), BY), *ratios.HEADS]


def line(within: Within, pair: VariantPair) -> list[str]:
    """Return what stands below the headings of a cell."""
    base = within.titles.get("variant", {}).get(pair.base, pair.base)
    return [*_with_base(within, within.heads(pair.cell), base), *ratios.columns(pair)]


def _with_base(within: Within, words: list[str], base: str) -> list[str]:
    place = within.axes.index("variant") + 1
    return [*words[:place], base, *words[place:]]


def changed(within: Within) -> list[tuple[str, str]]:
    """Return the cells of which counters say that something differs, and what."""
    return [
        (", ".join(within.heads(pair.cell)), words)
        for pair in within.pairs
        if (words := counted(pair))
    ]


def counted(pair: VariantPair) -> str:
    """Say what differs by the counters; nothing if nothing does."""
    return "; ".join(change.words for change in pair.changes)
