"""The table of a campaign, as text: the same bytes every time."""

from collections.abc import Iterable
from typing import NamedTuple

from wallab.powercut.cutcell import LoadName
from wallab.powercut.report import CellReport, Report
from wallab.results.export import grid

HIT: dict[LoadName, str] = {
    "reload": "with unsynced WAL before others' commits",
    "standby": "with WAL reported as flushed to a file that was opened before the reload",
}
"""What it means that a cut hit the window."""


class Layout(NamedTuple):
    """A table of verdicts."""

    heads: list[str]
    naming: int
    """How many of the columns, from the first, say of what the verdicts are."""
    rows: list[list[str]]


def layout(cells: Iterable[CellReport], titles: dict[str, str]) -> Layout:
    """Lay verdicts out; `titles`: how variants are written.

    The columns are the methods; of a reload those after it, and the rows those before.
    """
    cells = list(cells)
    reloads = any(report.cell.to for report in cells)
    naming = ["patch", "writeback cache", "file system", *(["from"] if reloads else [])]
    methods = dict.fromkeys(_column(report) for report in cells)
    # In the order of the rows, as far as they are the same methods.
    columns = [
        name for name in dict.fromkeys([*(r.cell.sync for r in cells), *methods]) if name in methods
    ]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for report in cells:
        cell = report.cell
        head = (titles.get(cell.variant, cell.variant), cell.write_cache, cell.filesystem)
        row = rows.setdefault((*head, cell.sync) if reloads else head, {})
        row[_column(report)] = report.mark
    heads = [f"to {column}" if reloads else column for column in columns]
    return Layout(
        [*naming, *heads],
        len(naming),
        [[*head, *(marks.get(column, "") for column in columns)] for head, marks in rows.items()],
    )


def _column(report: CellReport) -> str:
    return report.cell.to or report.cell.sync


def _table(report: Report) -> str:
    table = layout(report.cells, report.campaign.titles.get("variant", {}))
    return grid.lay_out([table.heads, *table.rows], table.naming)


def _controls(report: Report) -> list[str]:
    if not report.controls:
        return []
    lines = ["", "Controls, which must lose:"]
    for control in report.controls:
        lost = control.state == "lost"
        verdict = control.account if lost else f"DID NOT LOSE in {control.cuts} cuts"
        lines.append(f"  {control.cell.control} ({control.cell.variant}): {verdict}")
    return lines


def _window(report: Report) -> list[str]:
    if not any(cell_report.cell.to for cell_report in report.cells):
        return []
    return [
        f"hit n: n of them {HIT['reload']}, which these had to sync, or, on a standby, "
        f"{HIT['standby']}. On a server it is 0 where both methods sync each write."
    ]


def conclusion(report: Report) -> str:
    """Say in a line what the campaign comes to."""
    if not report.proved:
        names = [control.cell.control for control in report.controls if control.state != "lost"]
        return f"The campaign proved nothing: {', '.join(names)} must lose and did not."
    if any(cell_report.cell.to for cell_report in report.cells):
        return _of_reloads(report)
    if losses := report.honest_losses:
        return f"{len(losses)} cells lost what they had acknowledged."
    honest = [
        cell_report
        for cell_report in report.cells
        if cell_report.cell.honest and cell_report.state == "safe"
    ]
    if not honest:
        return "Every control lost; no cell was cut that had to keep what it acknowledged."
    total = sum(cell_report.cuts for cell_report in honest)
    controls = "; every control lost" if report.controls else ""
    return (
        f"No loss in {total} cuts of {len(honest)} cells that have to keep what they acknowledge "
        f"(together: below {min(1.0, 3 / total):.2%} a cut at 95%){controls}."
    )


def _of_reloads(report: Report) -> str:
    """Say in a sentence for each variant what reloads did to it; only cuts that hit count."""
    titles = report.campaign.titles.get("variant", {})
    sentences = []
    for variant in dict.fromkeys(cell_report.cell.variant for cell_report in report.cells):
        mine = [
            cell_report
            for cell_report in report.cells
            if cell_report.cell.variant == variant and cell_report.cell.honest and cell_report.cuts
        ]
        cuts, hits, bad = (
            sum(getattr(cell_report, what) for cell_report in mine)
            for what in ("cuts", "hits", "bad")
        )
        if not mine:
            continue
        lost = [cell_report for cell_report in mine if cell_report.bad]
        if lost:
            verdict = f"{bad} lost what had been acknowledged, in {len(lost)} cells"
        elif hits:
            verdict = f"none lost anything (below {min(1.0, 3 / hits):.2%} of them at 95%)"
        else:
            verdict = "which proves nothing"
        hit = f"{hits} of them {HIT[mine[0].cell.load]}"
        sentences.append(f"{titles.get(variant, variant)}: {cuts} cuts, {hit}; {verdict}.")
    controls = " Every control lost." if report.controls else ""
    return " ".join(sentences) + controls


def render(report: Report) -> str:
    """Return the table, the controls and the accounts of the losses."""
    campaign = report.campaign
    version = ", ".join(sorted({build.version for build in campaign.builds.values()}))
    median = f", {report.median_s:.1f} s each (median)" if report.median_s else ""
    fault = "" if campaign.fault == "power" else f", fault {campaign.fault}"
    loads = dict.fromkeys(cell.load for cell in campaign.cells if cell.load != "transactions")
    load = f", load {', '.join(loads)}" if loads else ""
    lines = [
        f"Power cuts: {campaign.name}",
        f"PostgreSQL {version}, {campaign.started[:10]}, seed {campaign.seed}{fault}{load}: "
        f"{report.cuts} cuts{median}",
        "",
        _table(report),
        "",
        "safe n: n cuts, nothing lost; at 95% a cut loses with a probability below 3/n.",
        "LOST k/n: k of n cuts lost or broke something. Cells that nobody flushes, or whose "
        "server never syncs, are cut only until they lose.",
        *_window(report),
        *_controls(report),
    ]
    if losses := [cell_report for cell_report in report.cells if cell_report.state == "lost"]:
        lines += ["", "Losses:"]
        for loss in losses:
            allowed = "" if loss.cell.honest else " (may lose)"
            lines.append(f"  {loss.cell.name}{allowed}: {loss.account}")
    if unfinished := report.unfinished:
        lines += [
            "",
            f"Without a verdict: {', '.join(cell_report.cell.name for cell_report in unfinished)}",
        ]
    return "\n".join([*lines, "", conclusion(report)]) + "\n"
