"""What campaigns of power cuts say of the cells of a run."""

from pathlib import Path

from wallab.errors import LabError
from wallab.powercut import campaign, conduct
from wallab.powercut.campaign import CUTS, Campaign
from wallab.powercut.cutcell import CutCell
from wallab.powercut.cutrecord import CutRecord, RecordFile
from wallab.powercut.report import report_on
from wallab.record.durability import Durability
from wallab.record.experiment import Cell
from wallab.record.manifest import Manifest
from wallab.results.table import Mark


def of(folders: list[Path], run: Manifest) -> Mark:
    """Return what the campaigns say of each cell of the run.

    LabError for a campaign of another source, patch or compiler, and for one that proved nothing.
    """
    records: list[CutRecord] = []
    for folder in folders:
        record = campaign.load(folder)
        _check(folder, record, run)
        records += RecordFile(folder / CUTS).read()

    def mark(cell: Cell) -> Durability | None:
        if (cut := _cut_cell(cell, run)) is None:
            return None
        return report_on(cut, records).durability

    return mark


def _check(folder: Path, record: Campaign, run: Manifest) -> None:
    """Refuse a campaign that says nothing about the run."""
    if record.fault != "power":
        raise LabError(f"{folder}: was about {record.fault}, not about power cuts")
    if all(cell.load != "transactions" for cell in record.cells):
        raise LabError(f"{folder}: was about reloads, not about what is always so")
    if not conduct.report(folder).proved:
        raise LabError(f"{folder}: a control that must lose did not, so it proves nothing")
    ours = {build.variant: build.key for build in run.builds.values()}
    common = [variant for variant in record.builds if variant in ours]
    if not common:
        raise LabError(f"{folder}: cut no variant of this run")
    if differing := [variant for variant in common if record.builds[variant].key != ours[variant]]:
        raise LabError(
            f"{folder}: another source, patch or compiler made its {', '.join(differing)}; cut the "
            "power of the run's own servers with scripts/power-cut"
        )


def _cut_cell(cell: Cell, run: Manifest) -> CutCell | None:
    """Return the campaign's cell for one of the table; None if campaigns have no such cell."""
    drives = run.experiment.drive
    wal = drives.get("wal") or drives["data"]
    variant, sync = cell.get("variant"), cell.get("sync")
    cache = wal.write_cache or cell.get("write_cache")
    if variant is None or sync is None or cache is None:
        return None
    return CutCell(variant, cache, sync, cell.get("file_system", wal.filesystem))
