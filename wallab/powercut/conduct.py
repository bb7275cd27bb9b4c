"""Conduct a campaign: workers cut what the agenda says, records go to cuts.jsonl."""

import contextlib
import time
from pathlib import Path

from wallab.duration import duration
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import ledger
from wallab.powercut import campaign, display
from wallab.powercut.campaign import CUTS, Agenda, Campaign
from wallab.powercut.crew import Crew, Setup, Task
from wallab.powercut.cutrecord import CutRecord, RecordFile
from wallab.powercut.report import Report, summarize
from wallab.progress import Work, say
from wallab.record import difference

TABLE = "table.txt"


def report(folder: Path) -> Report:
    """Return what the campaign in the directory says; LabError if it holds none."""
    return summarize(campaign.load(folder), RecordFile(folder / CUTS).read())


class Conductor:
    """A campaign's directory and the workers that fill it."""

    def __init__(
        self,
        folder: Path,
        record: Campaign,
        servers: dict[str, Path],
        traces: str,
        *,
        guest: bool,
    ) -> None:
        """`record` lacks the methods, which the workers find out; traces: none, lost or all.

        `guest`: whether the code of a server is a stranger's.
        """
        self.folder = folder
        self._campaign = record
        self._servers = servers
        self._guest = guest
        self._traces = traces
        self._records = RecordFile(folder / CUTS)

    def conduct(self, jobs: int, *, resumed: bool) -> Report:
        """Cut what is missing with so many workers, and return what it comes to.

        A new campaign makes the directory; a resumed one must have been planned the same.
        """
        for line in ledger.clear_dead():
            say(f"left behind by an earlier run: {line}")
        if resumed:
            self._continue()
        record = self._campaign
        every = [*record.cells, *record.controls]
        setup = Setup(
            servers=self._servers,
            filesystems=list(dict.fromkeys(cell.filesystem for cell in every)),
            profiles=record.profiles,
            settings=record.settings,
            seed=record.seed,
            guest=self._guest,
        )
        with contextlib.closing(Crew(jobs)) as crew:
            with Work(f"making drives for {jobs} workers"):
                methods = crew.open(setup).methods
            if resumed and record.methods != methods:
                raise LabError(
                    f"{self.folder} cannot be resumed: the servers' values of wal_sync_method "
                    "differ now. Start a new campaign instead."
                )
            record.methods = methods
            self.folder.mkdir(parents=True, exist_ok=True)
            jsonfile.save(self.folder / campaign.FILE, record)
            self._cut(crew)
        concluded = report(self.folder)
        (self.folder / TABLE).write_text(display.render(concluded))
        return concluded

    def _continue(self) -> None:
        before = campaign.load(self.folder)
        if differing := campaign.difference(before, self._campaign):
            raise LabError(
                f"{self.folder} cannot be resumed: what was cut differs now in "
                f"{', '.join(differing)}. Start a new campaign instead"
                f"{difference.way_back(before.lab, self._campaign.lab)}."
            )
        before.cuts = self._campaign.cuts
        self._campaign = before
        if self._records.set_aside_damaged_end():
            say(f"{self._records.path}: set the damaged last line aside")

    def _cut(self, crew: Crew) -> None:
        agenda = Agenda(self._campaign, self._records.read())
        already = agenda.done
        begun = time.monotonic()
        traces = self.folder / "traces"
        if self._traces != "none":
            traces.mkdir(exist_ok=True)
        with Work(f"{self._campaign.name}: {agenda.left} cuts") as work:

            def next_task() -> Task | None:
                if (cut := agenda.next()) is None:
                    return None
                cell, number = cut
                name = f"{cell.name} {number}".replace(" ", "-")
                trace = None if self._traces == "none" else (traces / name).absolute()
                keep_all = self._traces == "all"
                return Task(cell, number, self._campaign.fault, trace, keep_all)

            def finished(record: CutRecord) -> None:
                self._records.append(record)
                agenda.finish(record)
                done, left = agenda.done - already, agenda.left
                spent = time.monotonic() - begun
                seconds = spent / done * left if done else None
                work.update(done / max(1, done + left), record.cell.name, seconds)
                if record.category == "failed" or (
                    record.category != "safe" and record.cell.honest
                ):
                    work.line(
                        f"{record.cell.name}, cut {record.number}: {record.category}: "
                        f"{record.account}"
                    )

            crew.run(next_task, finished)
        say(
            f"{agenda.done - already} cuts in {duration(time.monotonic() - begun)}; "
            f"records: {self._records.path}"
        )
