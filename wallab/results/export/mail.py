"""What a run says of its variants, as a plain-text mail: 72 columns, verdicts first."""

import textwrap
from collections.abc import Iterator

from wallab.record.manifest import Manifest
from wallab.record.values import VALUES
from wallab.results.comparison import Verdict
from wallab.results.export import ratios
from wallab.results.table import Table, axis_title
from wallab.results.within import VariantPair, Within

WIDTH = 72

VERDICTS: tuple[Verdict, ...] = (
    "slower",
    "faster",
    "differs by less than 1%",
    "no difference seen",
    "too few rounds",
)
"""In the order in which a reviewer wants to read them."""


def _wrapped(words: str, indent: str = "", first: str | None = None) -> str:
    return textwrap.fill(
        words,
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def _cell(within: Within, pair: VariantPair, varying: list[str]) -> str:
    """Name the cell by the axes on which there is a choice."""
    titles = dict(zip(within.axes, within.heads(pair.cell), strict=True))
    return ", ".join(f"{axis_title(axis)} {titles[axis]}" for axis in varying) or "the only cell"


def _pairs(within: Within, pairs: list[VariantPair]) -> Iterator[str]:
    """Yield the lines of a variant's cells, verdict by verdict."""
    varying = [
        axis
        for axis in within.axes
        if axis != "variant" and len({pair.cell[axis] for pair in pairs}) > 1
    ]
    for verdict in VERDICTS:
        those = [pair for pair in pairs if pair.verdict == verdict]
        if not those:
            continue
        yield f"{verdict} ({len(those)} of {len(pairs)} cells)"
        for pair in those:
            yield _wrapped(_cell(within, pair, varying), "    ", "  ")
            ratio, interval, rounds, _ = ratios.columns(pair)
            yield _wrapped(
                f"ratio {ratio}" + (f" ({interval})" if interval else "") + f", {rounds} rounds",
                "    ",
            )
            for change in pair.changes:
                yield _wrapped(change.words, "      ", "    ")
        yield ""


def _failed(table: Table) -> Iterator[str]:
    """Yield a line for each cell that failed in every round."""
    for cell in table.cells:
        if cell.state == "failed":
            yield _wrapped(f"failed in every round: {', '.join(cell.cell.values())}", "  ", "")


def render(plan: Manifest, table: Table) -> str | None:
    """Return the mail's text; None if no variant has one beside it that it is built on."""
    within = table.within
    if within is None or not within.pairs:
        return None
    value = VALUES[within.value]
    better = "less is better" if value.less_is_better else "more is better"
    titles = within.titles.get("variant", {})
    lines = [_wrapped(table.title), _wrapped(table.subtitle), ""]
    for variant, base in dict.fromkeys((pair.cell["variant"], pair.base) for pair in within.pairs):
        head = f"{titles.get(variant, variant)} by {titles.get(base, base)}: {value.title}"
        lines += [_wrapped(f"{head} ({better})"), ""]
        pairs = [p for p in within.pairs if (p.cell["variant"], p.base) == (variant, base)]
        lines += _pairs(within, pairs)
    lines += [*_failed(table), _wrapped(ratios.about_verdicts(within)), ""]
    if table.machine:
        lines.append(_wrapped(f"Machine: {table.machine}."))
    else:
        lines.append(_wrapped(f"Machine: {plan.machine.cpu}, {plan.machine.system}."))
    lines.append(
        _wrapped(
            f"Measured by the WAL lab, commit {plan.lab.get('commit', 'unknown')[:12]}: "
            f"experiment {plan.name}, preset {plan.preset_name}, seed {plan.seed}."
        )
    )
    return "\n".join(lines) + "\n"
