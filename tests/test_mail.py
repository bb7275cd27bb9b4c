"""What a run says of its variants in a mail, and what counters say differs."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from wallab import paths
from wallab.command import tabulate
from wallab.errors import LabError
from wallab.record.measured import Measured
from wallab.record.samples import Sample, SampleFile
from wallab.record.walcounters import WalCounters
from wallab.results import changes, evidence, tabulation
from wallab.results.changes import Change
from wallab.results.export import mail
from wallab.results.tabulation import Results

EXAMPLE = paths.RESULTS / "example-wal-buffers"


@pytest.fixture(scope="module")
def example() -> Results:
    """A run with verdicts."""
    return tabulation.results_of(EXAMPLE)


@pytest.fixture(scope="module")
def plain() -> Sample:
    """A sample."""
    return SampleFile(EXAMPLE / "samples.jsonl").read()[0]


def side(plain: Sample, writes: int, size: int, images: int = 100) -> changes.Side:
    """A cell of 1000 transactions with so many WAL writes of so many bytes."""
    wal = WalCounters(writes, writes * size, 500, 10**6, images)
    samples = [msgspec.structs.replace(plain, figures=Measured(100, 1000, 0, 1, 1), wal=wal)] * 2
    return evidence.of(samples), samples


def test_what_differs_by_a_share_worth_a_word(plain: Sample) -> None:
    old = side(plain, 1000, 8192)
    assert changes.of(old, old) == ()
    assert changes.of(side(plain, 1040, 8192), old) == ()
    assert changes.of(side(plain, 690, 8192), old) == (Change("WAL writes/tx", 0.69, 1.0),)
    # What is a word for people is the same for them below a hundredth.
    assert changes.of(side(plain, 1000, 8192, 108), old) == ()
    assert [c.name for c in changes.of(side(plain, 1000, 16384, 120), old)] == [
        "kB/WAL write", "full-page images/tx",
    ]  # fmt: skip


def test_words() -> None:
    assert Change("WAL writes/tx", 0.69, 1.0).words == "-31% WAL writes/tx (0.69, not 1.00)"
    assert Change("kB/WAL write", 15.9, 8.0).words == "+99% kB/WAL write (15.90, not 8.00)"
    assert Change("kB/WAL write", 186.0, 8.0).words == "23.2 × kB/WAL write (186.00, not 8.00)"
    assert Change("drive flushes/tx", 1.5, 0.0).words == "drive flushes/tx (1.50, not 0.00)"


def test_what_was_not_counted_differs_in_nothing(plain: Sample) -> None:
    _, samples = side(plain, 1000, 8192)
    assert changes.of((None, samples), side(plain, 10, 8192)) == ()
    assert changes.of((None, []), (None, [])) == ()


def test_a_mail(example: Results) -> None:
    text = tabulation.render(example, "mail")
    lines = text.splitlines()
    assert max(map(len, lines)) <= mail.WIDTH
    assert "gather-write by stock: TPS (more is better)" in lines
    # What a reviewer has to know first, with what the counters say of it.
    assert lines.index("faster (2 of 6 cells)") < lines.index("no difference seen (4 of 6 cells)")
    at = lines.index("  setting.wal_buffers 512kB, sync open_datasync")
    assert lines[at + 1 : at + 3] == [
        "    ratio 1.252 (1.207 to 1.298), 5 rounds",
        "    -26% WAL writes/tx (0.08, not 0.11)",
    ]
    assert "experiment wal-buffers, preset quick, seed 1." in " ".join(text.split())
    assert text == tabulation.render(tabulation.results_of(EXAMPLE), "mail")


def test_what_is_slower_comes_first_and_what_failed_is_named(example: Results) -> None:
    assert example.table.within
    first, *others = example.table.within.pairs
    pairs = (msgspec.structs.replace(first, verdict="slower"), *others)
    worse = msgspec.structs.replace(example.table.within, pairs=pairs)
    cell = example.table.rows[0].cells[0]
    assert cell
    failed = msgspec.structs.replace(cell, state="failed")
    rows = (
        msgspec.structs.replace(
            example.table.rows[0], cells=(failed, *example.table.rows[0].cells[1:])
        ),
        *example.table.rows[1:],
    )
    table = msgspec.structs.replace(example.table, within=worse, rows=rows)
    text = mail.render(example.plan, table)
    assert text
    lines = text.splitlines()
    heads = [line for line in lines if line.endswith(" of 6 cells)")]
    assert [head.split(" (")[0] for head in heads] == ["slower", "faster", "no difference seen"]
    assert "failed in every round: 512kB, stock, fdatasync" in lines


def test_long_names_are_wrapped(example: Results) -> None:
    long = "a patch with a very long title " * 5
    assert example.table.within
    titles = {"variant": {"gather-write": long}}
    worse = msgspec.structs.replace(example.table.within, titles=titles)
    table = msgspec.structs.replace(example.table, within=worse, title=long + "x" * 200)
    text = mail.render(example.plan, table)
    assert text
    assert max(map(len, text.splitlines())) <= mail.WIDTH
    assert long.strip() in " ".join(text.split())


def test_no_mail_without_something_to_compare(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="--variants stock,NAME measures both"):
        tabulation.render(tabulation.results_of(paths.RESULTS / "example-read-ahead"), "mail")
    arguments = [str(paths.RESULTS / "example-smp"), "--format", "mail"]
    result = CliRunner().invoke(tabulate.command, arguments, standalone_mode=False)
    assert isinstance(result.exception, LabError)
    assert result.stdout == ""


def test_tables_say_what_differs(example: Results) -> None:
    words = "-26% WAL writes/tx (0.08, not 0.11); +33% kB/WAL write"
    assert f"512kB, gather-write, open_datasync: {words}" in tabulation.render(example, "text")
    line = f"- **512kB, gather-write, open_datasync**: {words}"
    assert line in tabulation.render(example, "markdown")
    assert words in tabulation.render(example, "html").replace("&#39;", "'")
    pairs = example.table.within.pairs if example.table.within else ()
    assert [bool(pair.changes) for pair in pairs] == [True, True, True, False, False, False]
