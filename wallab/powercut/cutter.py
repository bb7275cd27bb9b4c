"""Cut a bed's drives, cell by cell."""

from pathlib import Path

import msgspec

from wallab.powercut.bed import SETTINGS, CutBed
from wallab.powercut.cutcell import CutCell, LoadName
from wallab.powercut.cutrecord import CutRecord
from wallab.powercut.reloadtrial import ReloadTrial
from wallab.powercut.standbytrial import StandbyTrial
from wallab.powercut.trial import Trial

TRIALS: dict[LoadName, type[Trial]] = {
    "transactions": Trial,
    "reload": ReloadTrial,
    "standby": StandbyTrial,
}
"""Load -> what is done with it."""


class Cutter:
    """Cuts the power of a bed's drives, cell by cell."""

    def __init__(self, bed: CutBed, settings: dict[str, str], seed: int) -> None:
        """`settings` are the experiment's; those of the bed go first."""
        self._bed = bed
        self._settings = settings | SETTINGS
        self._seed = seed

    def cut(
        self,
        cell: CutCell,
        number: int,
        fault: str = "power",
        trace: Path | None = None,
        keep_trace: bool = True,
    ) -> CutRecord:
        """Cut once and judge.

        The trace of the WAL drive goes to that file if one is named, and stays there if it is to
        be kept or something was lost. A server that does not come back is a verdict; MachineError
        if the bed itself broke.
        """
        kind = TRIALS[cell.load]
        trial = kind(self._bed, cell, number, fault, trace, self._settings, self._seed)
        record = trial.run()
        if trace and record.category == "safe" and not keep_trace:
            trace.unlink(missing_ok=True)
            record = msgspec.structs.replace(record, trace="")
        return record
