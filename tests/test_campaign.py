"""Which cuts a campaign makes, and what it concludes from them."""

import html
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from click.testing import CliRunner

from wallab import paths
from wallab.bench import provenance
from wallab.command import power_cut, tabulate
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import ledger
from wallab.powercut import campaign, conduct, display, marks, window
from wallab.powercut.campaign import Agenda, Campaign
from wallab.powercut.conduct import Conductor
from wallab.powercut.controls import ATTEMPTS, CONTROLS
from wallab.powercut.crew import Ready, Setup
from wallab.powercut.cutcell import CutCell
from wallab.powercut.cutrecord import CutRecord, RecordFile
from wallab.powercut.oracle import Category
from wallab.powercut.report import summarize
from wallab.powercut.window import Window
from wallab.record import manifest, matrix
from wallab.results import tabulation

HONEST = CutCell("both", "on", "open_direct", "xfs")
RISKY = CutCell("both", "on-unflushed", "open_direct", "xfs")
LACKING = CutCell("stock", "on", "open_direct", "xfs")


def plan(*cells: CutCell, cuts: int = 5) -> Campaign:
    """A plan of these cells and all controls."""
    return Campaign(
        name="thread", started="2026-11-21T00:00:00Z", seed=1, cuts=cuts, fault="power",
        cells=cells, controls=tuple(campaign.control_cells("both")), settings={}, profiles={},
        source="18", builds={}, lab={}, machine=provenance.machine(),
        methods={"both": ("fdatasync", "open_direct"), "stock": ("fdatasync",)},
    )  # fmt: skip


def record(cell: CutCell, number: int, category: Category = "safe", promised: int = 9) -> CutRecord:
    """A cut of the cell."""
    lost = 0 if category == "safe" else 1
    return CutRecord(
        cell=cell, number=number, started="", category=category, promised=promised, lost=lost,
        account="" if category == "safe" else "why", phases={"load": 2.0},
    )  # fmt: skip


def run(agenda: Agenda, losing: set[CutCell]) -> list[CutCell]:
    """Follow the agenda to its end, one cut at a time; return what was cut."""
    cut = []
    while task := agenda.next():
        cell, number = task
        cut.append(cell)
        agenda.finish(record(cell, number, "lost" if cell in losing else "safe"))
    return cut


def test_controls_and_risky_cells_are_cut_until_they_lose() -> None:
    made = plan(HONEST, RISKY, LACKING)
    cut = run(Agenda(made, []), {*made.controls, RISKY})
    assert cut.count(HONEST) == 5
    assert cut.count(RISKY) == 1
    assert cut.count(LACKING) == 0
    assert all(cut.count(control) == 1 for control in made.controls)


def test_control_that_survives_is_given_up_at_last() -> None:
    made = plan(HONEST)
    cut = run(Agenda(made, []), set())
    assert all(cut.count(control) == ATTEMPTS for control in made.controls)


def test_failed_cut_is_tried_again_but_not_for_ever() -> None:
    agenda = Agenda(plan(HONEST, cuts=2), [])
    numbers = []
    while task := agenda.next():
        cell, number = task
        made = record(cell, number, "lost" if cell.control else "safe")
        if cell == HONEST:
            numbers.append(number)
            made = msgspec.structs.replace(made, category="failed")
        agenda.finish(made)
    assert numbers == [1, 2, 3]
    assert agenda.given_up() == [HONEST]


def test_several_workers_share_the_agenda() -> None:
    agenda = Agenda(plan(HONEST, cuts=4), [])
    busy = []
    while task := agenda.next():
        busy.append(task)
    # Each control once, since the first loss of it may be enough, and all cuts of the cell.
    assert len(busy) == len(CONTROLS) + 4
    assert len(set(busy)) == len(busy)


def test_resumed_campaign_cuts_what_is_missing() -> None:
    made = plan(HONEST, cuts=4)
    before = [record(control, 1, "lost") for control in made.controls]
    before += [record(HONEST, 1), record(HONEST, 2)]
    agenda = Agenda(made, before)
    assert agenda.left == 2
    assert run(agenda, set()) == [HONEST, HONEST]


class MockCrew:
    """Workers that need no drives and cut nothing."""

    methods: ClassVar[dict[str, tuple[str, ...]]] = {"both": ("fdatasync",)}

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, setup: Setup) -> Ready:
        return Ready(self.methods)

    def run(self, next_task: object, finished: object) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """A campaign that has a folder, and no cuts yet."""
    monkeypatch.setattr(ledger, "clear_dead", list)
    monkeypatch.setattr(conduct, "Crew", MockCrew)
    builds = {"both": manifest.load(paths.RESULTS / "example-quick").builds["both"]}
    made = msgspec.structs.replace(
        plan(HONEST), lab={"version": "1", "commit": "abc", "files": "01"}, builds=builds,
        drive_program="02",
    )  # fmt: skip
    Conductor(tmp_path, made, {}, "none", guest=False).conduct(1, resumed=False)
    return made


def resume(folder: Path, later: Campaign) -> None:
    """Go on with the campaign in the folder as it is planned now."""
    Conductor(folder, later, {}, "none", guest=False).conduct(1, resumed=True)


OTHERS: dict[str, tuple[Any, str]] = {
    "name": ("other", "name"),
    "seed": (2, "seed"),
    "fault": ("kill-backend", "fault"),
    "cells": ((RISKY,), "cells"),
    "controls": ((), "controls"),
    "settings": ({"commit_delay": "0"}, "settings"),
    "profiles": ({"wal": "nvme"}, "profiles"),
    "source": ("17", "source"),
    "builds": ({}, "source, patches or compiler"),
    "lab": ({"version": "1", "commit": "def", "files": "01"}, "the lab's commit.*checkout abc"),
    "machine": (msgspec.structs.replace(provenance.machine(), cpus=99), "machine"),
    "drive_program": ("03", "the drive's program"),
}
"""Field of a campaign -> something else, and how it is named."""

OF_THE_SESSION = {"started", "cuts", "methods", "titles"}
"""More cuts may be asked for, and the workers find the methods out."""


def test_every_field_of_a_campaign_is_decided_on() -> None:
    assert set(Campaign.__struct_fields__) == OTHERS.keys() | OF_THE_SESSION


@pytest.mark.parametrize("field", OTHERS)
def test_campaign_that_differs_is_not_resumed(
    field: str, begun: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, named = OTHERS[field]
    before = (tmp_path / campaign.FILE).read_bytes()
    monkeypatch.delattr(conduct, "Crew")  # no drive is made for it
    with pytest.raises(LabError, match=f"differs now in {named}"):
        resume(tmp_path, msgspec.structs.replace(begun, cuts=9, **{field: other}))
    assert (tmp_path / campaign.FILE).read_bytes() == before


def test_campaign_on_servers_with_other_methods_is_not_resumed(
    begun: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (tmp_path / campaign.FILE).read_bytes()
    monkeypatch.setattr(MockCrew, "methods", {"both": ("fdatasync", "fsync")})
    with pytest.raises(LabError, match="values of wal_sync_method differ now"):
        resume(tmp_path, begun)
    assert (tmp_path / campaign.FILE).read_bytes() == before


def test_campaign_that_does_not_differ_is_resumed(begun: Campaign, tmp_path: Path) -> None:
    before = campaign.load(tmp_path)
    resume(tmp_path, msgspec.structs.replace(begun, cuts=9, started="now", methods={}))
    assert campaign.load(tmp_path) == msgspec.structs.replace(before, cuts=9)


def test_verdicts_and_bounds() -> None:
    made = plan(HONEST, RISKY, LACKING)
    records = [record(HONEST, n) for n in range(1, 51)]
    records += [record(HONEST, 51, promised=0)]  # proves nothing
    records += [record(RISKY, 1, "lost")]
    records += [record(control, 1, "corrupted") for control in made.controls]
    report = summarize(made, records)
    marks = [verdict.mark for verdict in report.cells]
    assert marks == ["safe 50", "LOST 1/1", "(N/A)"]
    assert report.cells[0].durability is not None
    assert report.cells[0].durability.bound == pytest.approx(0.06)
    assert report.proved
    assert report.honest_losses == []
    assert "No loss in 50 cuts of 1 cells" in display.render(report)


def test_surviving_control_means_that_nothing_is_proved() -> None:
    made = plan(HONEST)
    records = [record(HONEST, 1)] + [record(control, 1) for control in made.controls]
    report = summarize(made, records)
    assert not report.proved
    assert "proved nothing" in display.render(report)
    assert "DID NOT LOSE" in display.render(report)


def test_honest_loss_is_told() -> None:
    made = plan(HONEST)
    records = [record(HONEST, 1, "would not start")]
    records += [record(control, 1, "lost") for control in made.controls]
    report = summarize(made, records)
    assert [verdict.cell for verdict in report.honest_losses] == [HONEST]
    assert "would not start: why" in display.render(report)


FORWARD = CutCell("stock", "on", "fdatasync", "xfs", load="reload", to="open_datasync")
BETWEEN = CutCell("both", "on", "open_sync", "xfs", load="reload", to="open_datasync")
MENDED = CutCell("both", "on", "fdatasync", "xfs", load="reload", to="open_datasync")
LACKS_TO = CutCell("stock", "on", "fdatasync", "xfs", load="reload", to="open_direct")


def of_reload(cell: CutCell, number: int, category: Category, unsynced: float) -> CutRecord:
    """A cut after a reload, before which so many kB had not been synced."""
    window = Window("old", 400.0, unsynced, 0.0)
    return msgspec.structs.replace(record(cell, number, category), window=window)


def test_verdicts_on_reloads_count_the_cuts_that_hit_the_window() -> None:
    made = plan(FORWARD, LACKS_TO, MENDED, BETWEEN)
    made.methods |= {
        "stock": ("fdatasync", "open_datasync"),
        "both": ("fdatasync", "open_sync", "open_datasync"),
    }
    records = [of_reload(FORWARD, 1, "lost", 300.0), of_reload(FORWARD, 2, "safe", 300.0)]
    records += [of_reload(MENDED, number, "safe", 300.0) for number in range(1, 31)]
    records += [of_reload(BETWEEN, number, "safe", 0.0) for number in range(1, 31)]
    records += [record(control, 1, "lost") for control in made.controls]
    report = summarize(made, records)
    assert [verdict.mark for verdict in report.cells] == [
        "LOST 1/2", "(N/A)", "safe 30, hit 30", "safe 30, hit 0",
    ]  # fmt: skip
    table = display.layout(report.cells, {"both": "mended"})
    assert table.heads[table.naming :] == ["to open_datasync", "to open_direct"]
    assert table.rows == [
        ["stock", "on", "xfs", "fdatasync", "LOST 1/2", "(N/A)"],
        ["mended", "on", "xfs", "fdatasync", "safe 30, hit 30", ""],
        ["mended", "on", "xfs", "open_sync", "safe 30, hit 0", ""],
    ]
    assert display.render(report).splitlines()[-1] == (
        "stock: 2 cuts, 2 of them with unsynced WAL before others' commits; 1 lost what had been "
        "acknowledged, in 1 cells. both: 60 cuts, 30 of them with unsynced WAL before others' "
        "commits; none lost anything (below 10.00% of them at 95%). Every control lost."
    )


def test_reloads_that_never_hit_the_window_prove_nothing() -> None:
    made = plan(BETWEEN)
    made.methods["both"] = ("open_sync", "open_datasync", "fdatasync")
    records = [of_reload(BETWEEN, 1, "safe", 0.0)]
    assert "which proves nothing" in display.conclusion(summarize(made, [
        *records, *(record(control, 1, "lost") for control in made.controls),
    ]))  # fmt: skip


def test_campaign_of_reloads_gives_no_marks(tmp_path: Path) -> None:
    run, folder = a_run_and_its_campaign(tmp_path, "")
    made = campaign.load(folder)
    made.cells = (MENDED,)
    jsonfile.save(folder / campaign.FILE, made)
    with pytest.raises(LabError, match="was about reloads"):
        marks.of([folder], manifest.load(run))


@pytest.mark.parametrize(
    ("old", "new", "who", "leaves"),
    [
        ("fdatasync", "open_datasync", "old", True),
        ("open_sync", "fsync", "new", True),
        ("fsync", "fdatasync", "old", True),
        ("open_sync", "open_datasync", "old", False),
        ("fdatasync_direct", "open_direct", "old", False),
        ("open_direct", "fdatasync", "new", True),
    ],
)
def test_who_writes_and_whether_that_is_to_be_synced(
    old: str, new: str, who: str, leaves: bool
) -> None:
    assert window.writer(old, new) == who
    assert window.opens(old, new) is leaves


def test_cells_are_chosen_by_their_values() -> None:
    experiment = matrix.find(matrix.read(), "thread")
    cells = campaign.choose(
        experiment,
        ["variant=both,committed", "write_cache=off,battery", "sync=fsync=false", "filesystem=xfs"],
    )
    assert [cell.name for cell in cells] == [
        "both off fsync=false xfs",
        "both battery fsync=false xfs",
        "committed off fsync=false xfs",
        "committed battery fsync=false xfs",
    ]
    for wrong in ("sync", "sync=no", "kernel=6"):
        with pytest.raises(LabError, match="--cells"):
            campaign.choose(experiment, [wrong])


def test_records_survive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "cuts.jsonl")
    file.append(record(HONEST, 1))
    with file.path.open("ab") as stream:
        stream.write(b'{"cell":')
    assert file.read() == [record(HONEST, 1)]
    assert file.set_aside_damaged_end()
    file.append(record(HONEST, 2))
    assert file.read() == [record(HONEST, 1), record(HONEST, 2)]
    file.path.write_text("nonsense\n")
    with pytest.raises(LabError, match="line 1"):
        file.read()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cells", "sync=slow"], "no sync “slow”"),
        (["--cells", "colour=red"], "expected AXIS=VALUE"),
        (["--output", "."], "is there already"),
        (["nothing"], "no experiment “nothing”"),
        (["--resume", "."], "no campaign of power cuts"),
        (["--resume", ".", "--seed", "1"], "--resume goes with"),
    ],
)
def test_mistaken_arguments_are_named(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").touch()
    with pytest.raises(LabError, match=words):
        power_cut.command.main(arguments, standalone_mode=False)


def a_run_and_its_campaign(
    folder: Path, cut_key: str, name: str = "quick", variant: str = "both"
) -> tuple[Path, Path]:
    """A committed example run, and a campaign on servers of that key or of the run's own."""
    run = paths.RESULTS / f"example-{name}"
    builds = {build.variant: build for build in manifest.load(run).builds.values()}
    made = plan(HONEST)
    made.builds = {
        variant: msgspec.structs.replace(builds[variant], key=cut_key or builds[variant].key)
    }
    honest = CutCell("both", "off", "open_direct", "xfs")
    lossy = CutCell("both", "off", "fsync=false", "xfs")
    made.cells = (honest, lossy)
    jsonfile.save(folder / campaign.FILE, made)
    file = RecordFile(folder / campaign.CUTS)
    for cut in [
        *(record(control, 1, "lost") for control in made.controls),
        *(record(honest, number) for number in range(1, 31)),
        record(lossy, 1, "lost"),
    ]:
        file.append(cut)
    return run, folder


def test_table_carries_the_marks(tmp_path: Path) -> None:
    run, folder = a_run_and_its_campaign(tmp_path, "")
    results = tabulation.results_of(run, mark=marks.of([folder], manifest.load(run)))
    for kind, words in (
        ("text", "safe 30 (<10.0%)"),
        ("text", "LOST 1/1"),
        ("text", "1 of 1 broke the promise (lost: why)"),
        ("markdown", "safe 30"),
        ("html", "safe 30"),
        ("csv", "power_cuts"),
        ("json", '"cuts": 30'),
    ):
        # Wherever the lines were broken.
        assert words in " ".join(html.unescape(tabulation.render(results, kind)).split()), kind
    without = tabulation.render(tabulation.results_of(run), "text")
    assert "power cuts" not in without


@pytest.mark.parametrize("name", ["read-ahead", "archive", "smp"])
def test_run_without_a_wal_drive_has_no_marks(tmp_path: Path, name: str) -> None:
    run, folder = a_run_and_its_campaign(tmp_path, "", name, "stock")
    arguments = [str(run), "--cuts", str(folder)]
    result = CliRunner().invoke(tabulate.command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout == tabulation.render(tabulation.results_of(run), "text")


def test_campaign_on_other_servers_is_refused(tmp_path: Path) -> None:
    run, folder = a_run_and_its_campaign(tmp_path, "another")
    with pytest.raises(LabError, match="another source, patch or compiler made its both"):
        marks.of([folder], manifest.load(run))


@pytest.mark.parametrize("name", ["read-ahead", "archive", "smp"])
def test_run_without_a_drive_for_its_wal_has_no_marks(name: str, tmp_path: Path) -> None:
    run = paths.RESULTS / f"example-{name}"
    _, folder = a_run_and_its_campaign(tmp_path, "")
    record = campaign.load(folder)
    *_, stock = manifest.load(run).builds.values()
    record.builds = {"stock": stock}
    jsonfile.save(folder / campaign.FILE, record)
    mark = marks.of([folder], manifest.load(run))
    rendered = tabulation.render(tabulation.results_of(run, mark=mark), "text")
    assert rendered == tabulation.render(tabulation.results_of(run), "text")


def test_campaign_that_proved_nothing_gives_no_marks(tmp_path: Path) -> None:
    run, folder = a_run_and_its_campaign(tmp_path, "")
    cuts = folder / campaign.CUTS
    cuts.write_bytes(b"".join(cuts.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(LabError, match="proves nothing"):
        marks.of([folder], manifest.load(run))


@pytest.mark.parametrize(
    "name",
    [
        "power-cuts",
        "power-cuts-15",
        "power-cuts-others",
        "power-cuts-15-others",
        "reload",
        "reload-standby",
    ],
)
def test_example_gives_the_same_table_again(name: str) -> None:
    folder = paths.RESULTS / f"example-{name}"
    assert display.render(conduct.report(folder)) == (folder / "table.txt").read_text()
