"""The table of a campaign, as text: the same bytes every time."""

from wallab.powercut.report import CellReport, Report
from wallab.results.export import grid


def _table(report: Report) -> str:
    columns = list(dict.fromkeys(cell_report.cell.sync for cell_report in report.cells))
    titles = report.campaign.titles.get("variant", {})
    rows: dict[tuple[str, str, str], dict[str, CellReport]] = {}
    for cell_report in report.cells:
        cell = cell_report.cell
        head = (cell.variant, cell.write_cache, cell.filesystem)
        rows.setdefault(head, {})[cell.sync] = cell_report
    lines = [["patch", "writeback cache", "file system", *columns]]
    for (variant, cache, filesystem), cells in rows.items():
        marks = [cells[column].mark if column in cells else "" for column in columns]
        lines.append([titles.get(variant, variant), cache, filesystem, *marks])
    return grid.lay_out(lines, 3)


def _controls(report: Report) -> list[str]:
    if not report.controls:
        return []
    lines = ["", "Controls, which must lose:"]
    for control in report.controls:
        lost = control.state == "lost"
        verdict = control.account if lost else f"DID NOT LOSE in {control.cuts} cuts"
        lines.append(f"  {control.cell.control} ({control.cell.variant}): {verdict}")
    return lines


def conclusion(report: Report) -> str:
    """Say in a line what the campaign comes to."""
    if not report.proved:
        names = [control.cell.control for control in report.controls if control.state != "lost"]
        return f"The campaign proved nothing: {', '.join(names)} must lose and did not."
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


def render(report: Report) -> str:
    """Return the table, the controls and the accounts of the losses."""
    campaign = report.campaign
    version = ", ".join(sorted({build.version for build in campaign.builds.values()}))
    median = f", {report.median_s:.1f} s each (median)" if report.median_s else ""
    fault = "" if campaign.fault == "power" else f", fault {campaign.fault}"
    lines = [
        f"Power cuts: {campaign.name}",
        f"PostgreSQL {version}, {campaign.started[:10]}, seed {campaign.seed}{fault}: "
        f"{report.cuts} cuts{median}",
        "",
        _table(report),
        "",
        "safe n: n cuts, nothing lost; at 95% a cut loses with a probability below 3/n.",
        "LOST k/n: k of n cuts lost or broke something. Cells that nobody flushes, or whose "
        "server never syncs, are cut only until they lose.",
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
