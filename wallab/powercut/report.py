"""What the cuts of a campaign say: a verdict on each cell."""

import collections
import statistics
from collections.abc import Iterable
from typing import Literal

import msgspec

from wallab.powercut.campaign import Campaign
from wallab.powercut.cutcell import CutCell
from wallab.powercut.cutrecord import CutRecord
from wallab.record.durability import Durability


class CellReport(msgspec.Struct, frozen=True):
    """What the cuts of one cell say."""

    cell: CutCell
    state: Literal["safe", "lost", "not cut", "failed", "N/A"]
    cuts: int = 0
    """With a verdict, and with at least one promise."""
    bad: int = 0
    """Of them, in which something was lost or broken."""
    hits: int = 0
    """Of them, in which WAL was there that a reload's commits had to sync, or rely on."""
    categories: dict[str, int] = {}
    promised: int = 0
    """Transactions, over all cuts."""
    account: str = ""
    """The shortest account of a loss, of the first cut that had one."""

    @property
    def durability(self) -> Durability | None:
        """What the cuts have shown; None if none was made."""
        return Durability(self.cuts, self.bad, self.account) if self.cuts else None

    @property
    def mark(self) -> str:
        """The verdict in a few characters."""
        if self.state == "safe":
            window = "" if self.cell.load == "transactions" else f", hit {self.hits}"
            return f"safe {self.cuts}{window}"
        if self.state == "lost":
            return f"LOST {self.bad}/{self.cuts}"
        return {"N/A": "(N/A)"}.get(self.state, self.state)


class Report(msgspec.Struct, frozen=True):
    """What a campaign says."""

    campaign: Campaign = msgspec.field(name="plan")
    cells: tuple[CellReport, ...]
    controls: tuple[CellReport, ...]
    cuts: int
    median_s: float | None
    """Of a cut, from load to verdict."""

    @property
    def proved(self) -> bool:
        """Whether every control that must lose has lost."""
        return all(control.state == "lost" for control in self.controls)

    @property
    def honest_losses(self) -> list[CellReport]:
        """Cells that had to keep everything and did not."""
        return [report for report in self.cells if report.cell.honest and report.state == "lost"]

    @property
    def unfinished(self) -> list[CellReport]:
        """Cells without a verdict that apply."""
        return [report for report in self.cells if report.state in {"not cut", "failed"}]


def report_on(cell: CutCell, records: Iterable[CutRecord]) -> CellReport:
    """Return the verdict on a cell from its cuts."""
    mine = sorted((r for r in records if r.cell == cell), key=lambda record: record.number)
    good = [r for r in mine if r.category != "failed" and r.promised]
    if not good:
        return CellReport(cell, "failed" if mine else "not cut")
    bad = [record for record in good if record.category != "safe"]
    return CellReport(
        cell=cell,
        state="lost" if bad else "safe",
        cuts=len(good),
        bad=len(bad),
        hits=sum(record.window is not None and record.window.hit for record in good),
        categories=dict(sorted(collections.Counter(r.category for r in good).items())),
        promised=sum(record.promised for record in good),
        account=f"{bad[0].category}: {bad[0].account}" if bad else "",
    )


def summarize(campaign: Campaign, records: list[CutRecord]) -> Report:
    """Return the verdicts on all cells, in the order of the campaign."""
    by_cell: dict[CutCell, list[CutRecord]] = {}
    for record in records:
        by_cell.setdefault(record.cell, []).append(record)

    def of(cell: CutCell) -> CellReport:
        if not campaign.applies(cell):
            return CellReport(cell, "N/A")
        return report_on(cell, by_cell.get(cell, []))

    good = [record.seconds for record in records if record.category != "failed"]
    return Report(
        campaign=campaign,
        cells=tuple(map(of, campaign.cells)),
        controls=tuple(map(of, campaign.controls)),
        cuts=len(good),
        median_s=statistics.median(good) if good else None,
    )
