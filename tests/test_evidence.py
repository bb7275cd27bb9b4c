"""The reasons given for a cell's figure follow from its counters."""

from typing import Any

import msgspec
import pytest

from wallab import paths
from wallab.record import manifest
from wallab.record.samples import SAMPLES, Sample, SampleFile
from wallab.results import evidence, summary
from wallab.results.evidence import Evidence
from wallab.results.export import footnotes, markdown, text
from wallab.results.tabulation import table_of

EXAMPLE = paths.RESULTS / "example-quick"

PAGED = Evidence(
    writes_per_transaction=2.1, bytes_per_write=8192.0, syncs_per_transaction=0.0,
    drive_writes_per_transaction=2.1, drive_flushes_per_transaction=0.0,
    revolutions_per_transaction=1.9, cache_hits=0.0, cache_full_s=0.0, seconds=10.0, units=1,
    kept=False, head_waited_s=8.5, head_moved_s=0.0, head_transferred_s=0.2,
    open_flags=("O_DSYNC",),
)  # fmt: skip
"""A page at a time, each synchronously."""


@pytest.mark.parametrize(
    ("changes", "reason", "no_reason"),
    [
        ({}, "each commit waits 1.9 revolutions: page by page, 2.1 writes of 1 page", "share"),
        ({}, "heads: 85% waiting, 0% moving, 2% transferring", "time stamps"),
        ({"drive_writes_per_transaction": 0.0, "head_waited_s": 0.0, "head_transferred_s": 0.0},
         "no commit waits for the WAL drive, which was idle 100%", "share"),
        ({"writes_per_transaction": 0.08, "drive_writes_per_transaction": 0.08,
          "bytes_per_write": 8192.0 * 24, "revolutions_per_transaction": 0.05},
         "12 commits share a write of 24 pages, and a commit waits 0.05", "page by page"),
        ({"drive_writes_per_transaction": 0.08, "revolutions_per_transaction": 0.05},
         "the kernel gathers the pages: 2.1 writes of 1 page a commit become 0.08", "share"),
        ({"drive_writes_per_transaction": 4.2, "open_flags": ("O_SYNC",), "head_moved_s": 3.0},
         "each WAL write takes 2.0 drive writes, since O_SYNC", "fsync"),
        ({"syncs_per_transaction": 0.1, "drive_writes_per_transaction": 0.2, "head_moved_s": 3.0,
          "revolutions_per_transaction": 0.1, "open_flags": ("none",)},
         "each fsync takes 2.0 drive writes, since fsync", "O_SYNC"),
        ({"cache_hits": 1.0, "drive_flushes_per_transaction": 2.1},
         "took 100% of the writes, and 2.10 flushes a commit emptied it", "nobody"),
        ({"cache_hits": 1.0, "drive_flushes_per_transaction": 2.1, "kept": True},
         "2.10 flushes a commit found it kept by the battery", "emptied"),
        ({"cache_hits": 1.0}, "no commit waits for more than the cache", "room"),
        ({"units": 4}, "heads: 21% waiting, 0% moving, 0% transferring", "time stamps"),
        ({"head_waited_s": 0.0, "revolutions_per_transaction": 0.0, "head_transferred_s": 4.0},
         "2.1 writes of 1 page a commit; the drive was at work 40% of the time", "revolutions"),
        ({"cache_hits": 1.0, "cache_full_s": 4.0}, "waited 40% of the time for room",
         "no commit"),
    ],
)  # fmt: skip
def test_reasons(changes: dict[str, Any], reason: str, no_reason: str) -> None:
    reasons = "; ".join(evidence.explain(msgspec.structs.replace(PAGED, **changes)))
    assert reason in reasons
    assert no_reason not in reasons


def example(sync: str) -> list[Sample]:
    """The example run's samples of direct-io, cache off, with this method."""
    cell = {"variant": "direct-io", "write_cache": "off", "sync": sync}
    return [s for s in SampleFile(EXAMPLE / SAMPLES).read() if s.cell == cell]


def test_sums_over_rounds() -> None:
    samples = example("open_datasync")
    sums = evidence.of(samples)
    counters = [s.drive["wal"].counters for s in samples]
    transactions = sum(s.figures.transactions for s in samples if s.figures)
    assert len(samples) == 3
    assert sums.cache_hits == 0
    assert sums.head_waited_s == sum(c["rotate_ns"] for c in counters) / 1e9
    assert sums.revolutions_per_transaction == (
        sum(c["revolutions_waited"] for c in counters) / transactions
    )
    assert 1.5 < sums.revolutions_per_transaction < 2.5
    shares = evidence.shares_of_head(sums)
    assert shares is not None
    assert abs(sum(shares.values()) - 1) < 1e-9
    assert shares["waited"] > 0.8


def test_units_of_the_drive_are_known() -> None:
    plan = manifest.load(EXAMPLE)
    samples = SampleFile(EXAMPLE / SAMPLES).read()
    single = summary.summarize(plan, samples, None)[1].evidence
    plan.drives = {"wal": plan.drives["wal"] | {"units": "4"}}
    four = summary.summarize(plan, samples, None)[1].evidence
    assert single is not None
    assert four is not None
    assert (single.units, four.units) == (1, 4)
    alone, shared = evidence.shares_of_head(single), evidence.shares_of_head(four)
    assert alone is not None
    assert shared is not None
    assert shared["waited"] == pytest.approx(alone["waited"] / 4)


def test_missing_counters_are_no_reason() -> None:
    """PostgreSQL 13 counts no writes; a real drive counts nothing."""
    samples = [msgspec.structs.replace(s, wal=None, drive={}) for s in example("fdatasync")]
    without_counters = evidence.of(samples)
    assert without_counters.writes_per_transaction is None
    assert evidence.shares_of_head(without_counters) is None
    assert evidence.explain(without_counters) == ()
    without_server = evidence.of(
        [msgspec.structs.replace(s, wal=None) for s in example("fdatasync")]
    )
    assert "drive writes a commit" in evidence.explain(without_server)[0]


def test_every_measured_cell_has_its_footnote() -> None:
    table = table_of(EXAMPLE)
    rows = dict(footnotes.by_row(table))
    assert list(rows) == [
        "direct io, off", "direct io, on", "direct io, on-unflushed", "gather-write, off",
        "both, off",
    ]  # fmt: skip
    measured = sum(1 for row in table.rows for cell in row.cells if cell and cell.tps)
    assert sum(map(len, rows.values())) == measured
    assert "1.9 revolutions: page by page" in dict(rows["direct io, off"])["open_datasync"]
    plain, marked = text.render(table), markdown.render(table)
    for page in (plain, marked):
        assert "13 commits share a write of 24 pages" in " ".join(page.split())
    assert text.render(table) == plain
    assert "heads: % waiting" in plain
