"""Runs as a list of them shows each: when, what, of which lab, and what came of it in a line."""

import msgspec

from wallab.record.manifest import Manifest
from wallab.record.values import VALUES
from wallab.results.table import Table
from wallab.results.within import Within


class Entry(msgspec.Struct, frozen=True):
    """A run."""

    name: str
    """Of its folder."""
    link: str
    """To its report, from beside the folder; nothing if it has none."""
    started: str
    """UTC."""
    experiment: str
    preset: str
    machine: str
    """Real, or virtual."""
    version: str
    """Of PostgreSQL."""
    variants: tuple[str, ...]
    cells: int
    """That were measured."""
    samples: int
    headline: str
    commit: str
    """Of the lab."""
    digest: str
    """SHA-256 of samples.jsonl."""
    ended: str


class Damaged(msgspec.Struct, frozen=True):
    """A run that cannot be read."""

    name: str
    reason: str


def entry(name: str, link: str, plan: Manifest, table: Table, samples: int, digest: str) -> Entry:
    """Return the run's entry; `samples` is how many it has, and `digest` that of their file."""
    last = plan.sessions[-1].ended if plan.sessions else ""
    return Entry(
        name=name,
        link=link,
        started=plan.started,
        experiment=plan.name,
        preset=plan.preset_name,
        machine="virtual" if plan.virtual else "real",
        version=", ".join(sorted({build.version for build in plan.builds.values()})),
        variants=tuple(
            table.value_title("variant", name)
            for name in dict.fromkeys(c.cell["variant"] for c in table.cells if "variant" in c.cell)
        ),
        cells=sum(1 for cell in table.cells if cell.state == "measured"),
        samples=samples,
        headline=headline(table),
        commit=plan.lab.get("commit", ""),
        digest=digest,
        ended=last or ("not ended" if plan.sessions else ""),
    )


def headline(table: Table) -> str:
    """Say in a line what was measured: the range of the first value, and what verdicts say."""
    name = table.values[0]
    means = [cell.values[name].mean for cell in table.cells if name in cell.values]
    if not means:
        return "nothing measured"
    value = VALUES[name]
    words = f"{value.title} {min(means):.{value.digits}f} to {max(means):.{value.digits}f}"
    if not table.within or not table.within.pairs:
        return words
    return f"{words}; {_verdicts(table.within)}"


def _verdicts(within: Within) -> str:
    verdicts = [pair.verdict for pair in within.pairs]
    judged = [verdict for verdict in verdicts if verdict != "too few rounds"]
    if not judged:
        return "too few rounds for verdicts on variants"
    return (
        f"{judged.count('faster')} faster and {judged.count('slower')} slower of {len(judged)} "
        "cells of variants"
    )
