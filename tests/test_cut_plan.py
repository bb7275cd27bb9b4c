"""What a new or a resumed campaign is, decided without a command line, a server or a drive."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wallab import paths
from wallab.bench import provenance
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import checkout, rights, sandbox
from wallab.powercut import campaign
from wallab.powercut.controls import CONTROLS
from wallab.powercut.plan import CampaignPlan, CampaignRequest, planned, prepare
from wallab.record import matrix
from wallab.record.conditions import server_name
from wallab.servers import builder, ownvariant, prebuilt
from wallab.servers.builder import Server

EXAMPLE = campaign.load(paths.LAB / "results" / "example-power-cuts")
FEW = ("write_cache=on", "sync=fdatasync,open_direct", "filesystem=xfs")


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for results."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def again(plan: CampaignPlan, **asked: Any) -> CampaignPlan:
    """The plan of a campaign that goes on where one that was planned like this has ended."""
    record = msgspec.structs.replace(
        EXAMPLE, name=plan.name, seed=plan.seed, cuts=plan.cuts, fault=plan.fault,
        cells=plan.cells, controls=plan.controls, source=plan.source, settings=plan.settings,
        profiles=plan.profiles,
        methods={cell.variant: ("fdatasync",) for cell in (*plan.cells, *plan.controls)},
    )  # fmt: skip
    plan.folder.mkdir(parents=True)
    jsonfile.save(plan.folder / campaign.FILE, record)
    return planned(CampaignRequest(resume=str(plan.folder), **asked))


def test_nothing_asked_for(results: Path) -> None:
    plan = planned(CampaignRequest())
    assert (plan.name, plan.cuts, plan.fault, plan.resumed) == ("thread", 3, "power", False)
    assert plan.folder.parent == results
    assert plan.folder.name.endswith("-power-cuts")
    assert not plan.folder.exists()
    experiment = matrix.find(matrix.read(), "thread")
    assert (plan.source, plan.settings) == ("18", experiment.settings)
    assert plan.profiles == {"wal": "ata-2005", "data": "ata-2005"}
    assert len(plan.cells) == 6 * 4 * 9 * 2
    assert [cell.control for cell in plan.controls] == list(CONTROLS)


def test_cells_fit_all_conditions() -> None:
    plan = planned(CampaignRequest(cells=(*FEW, "variant=both,committed")))
    assert [cell.name for cell in plan.cells] == [
        "both on fdatasync xfs", "both on open_direct xfs",
        "committed on fdatasync xfs", "committed on open_direct xfs",
    ]  # fmt: skip
    assert {cell.variant for cell in plan.controls} == {"committed"}


def test_reload_is_cut_for_every_pair_of_methods() -> None:
    few = ("variant=stock", "write_cache=on", "filesystem=xfs")
    plan = planned(CampaignRequest(cells=few, load="reload"))
    experiment = matrix.find(matrix.read(), "thread")
    methods = set(experiment.axes["sync"]) - {"fsync=false"}
    assert {(cell.sync, cell.to) for cell in plan.cells} == set(itertools.permutations(methods, 2))
    assert {cell.load for cell in plan.cells} == {"reload"}
    assert all(cell.honest for cell in plan.cells)
    # What must lose does so without a reload.
    assert {(cell.load, cell.to) for cell in plan.controls} == {("transactions", "")}
    single = (*few, "sync=fdatasync", "to=open_sync,fsync")
    plan = planned(CampaignRequest(cells=single, load="standby"))
    assert [cell.name for cell in plan.cells] == [
        "standby stock on fdatasync-to-open_sync xfs", "standby stock on fdatasync-to-fsync xfs",
    ]  # fmt: skip


def test_variants() -> None:
    plan = planned(CampaignRequest(cells=FEW, variants=("both",)))
    assert {cell.variant for cell in (*plan.cells, *plan.controls)} == {"both"}


def test_variant_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    with ownvariant.added("mine", "both", []):
        pass
    plan = planned(CampaignRequest(cells=(*FEW, "variant=mine"), variants=("stock", "mine")))
    assert [cell.name for cell in plan.cells] == [
        "mine on fdatasync xfs",
        "mine on open_direct xfs",
    ]
    assert {cell.variant for cell in plan.controls} == {"mine"}
    assert again(plan) == msgspec.structs.replace(plan, resumed=True)


def test_smaller_faults_have_no_controls() -> None:
    assert planned(CampaignRequest(fault="kill-backend")).controls == ()


def test_seed_is_drawn_unless_it_is_named() -> None:
    assert planned(CampaignRequest(seed=0)).seed == 0
    assert len({planned(CampaignRequest()).seed for _ in range(4)}) > 1


def test_source_is_the_experiments_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(CampaignRequest(source="/srv/pg")).source == "/srv/pg"
    monkeypatch.setattr(prebuilt, "default_source", lambda: "/of/the/image")
    assert planned(CampaignRequest()).source == "/of/the/image"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (CampaignRequest(experiment="nosuch"), "no experiment “nosuch”"),
        (CampaignRequest(experiment="smp"), "has no axis 'variant', so there is nothing to cut"),
        (CampaignRequest(cells=("sync=slow",)), "no sync “slow”"),
        (CampaignRequest(cells=("colour=red",)), "expected AXIS=VALUE"),
        (CampaignRequest(cells=("to=open_sync",)), "expected AXIS=VALUE.*filesystem$"),
        (CampaignRequest(cells=("sync=fsync=false",), load="reload"), "no sync “fsync=false”"),
        (CampaignRequest(cells=("sync=fsync", "to=fsync"), load="reload"), "that differ"),
        (CampaignRequest(load="reload", fault="wal-full"), "--load reload goes with --fault power"),
        (CampaignRequest(variants=("bath",)), "variant.*“bath”"),
        (CampaignRequest(output=Path("/etc")), "is there already"),
        (CampaignRequest(resume="/etc"), "no campaign of power cuts"),
    ],
)
def test_what_does_not_fit_is_refused(request_: CampaignRequest, words: str) -> None:
    with pytest.raises(LabError, match=words):
        planned(request_)


@pytest.mark.parametrize(
    "wal", ["", '[experiment.thread.drive.wal]\nkind = "device"\ndirectory = "/srv"\n\n']
)
def test_drives_whose_power_cannot_be_cut(wal: str, tmp_path: Path) -> None:
    text = paths.MATRIX.read_text()
    begin = text.index("[experiment.thread.drive.wal]")
    end = text.index("[experiment.thread.drive.data]")
    file = tmp_path / "matrix.toml"
    file.write_text(text[:begin] + wal + text[end:])
    with pytest.raises(LabError, match=r"takes an experiment with simulated drives, drive\.wal"):
        planned(CampaignRequest(matrix=file))


def test_drives_with_elevators_of_their_own(tmp_path: Path) -> None:
    text = paths.MATRIX.read_text()
    file = tmp_path / "matrix.toml"
    file.write_text(text.replace("size_mb = 2048", 'size_mb = 2048\nelevator = "fifo"', 1))
    with pytest.raises(
        LabError, match=r"drive\.wal\.elevator: a power cut takes that of the profile"
    ):
        planned(CampaignRequest(matrix=file))


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"cells": FEW, "variants": ("both",), "cuts": 7, "seed": 5},
        {"fault": "kill-backend", "source": "/srv/pg"},
        {"load": "standby", "cells": ("to=fdatasync,open_sync",)},
    ],
)
def test_resumed_campaign_is_planned_as_it_was(asked: dict[str, Any]) -> None:
    plan = planned(CampaignRequest(**asked))
    assert again(plan) == msgspec.structs.replace(plan, resumed=True)


def test_resumed_campaign_may_have_more_cuts() -> None:
    plan = planned(CampaignRequest(cells=FEW, cuts=2))
    resumed = again(plan, cuts=9, experiment="thread")
    assert resumed == msgspec.structs.replace(plan, resumed=True, cuts=9)


@pytest.mark.parametrize(
    "asked",
    [
        {"cells": ("sync=fsync",)},
        {"variants": ("both",)},
        {"seed": 0},
        {"source": "18"},
        {"fault": "power"},
        {"load": "transactions"},
        {"output": Path("elsewhere")},
        {"experiment": "thread-2005"},
    ],
)
def test_options_may_not_change_a_campaign(asked: dict[str, Any]) -> None:
    plan = planned(CampaignRequest(cells=FEW))
    own = "--resume goes with --cuts, --jobs" if "experiment" not in asked else "has its own"
    with pytest.raises(LabError, match=own):
        again(plan, **asked)


def test_every_option_is_decided_on_where_a_campaign_is_resumed() -> None:
    """A new one has to be added to the tests above, or here: the profiles are compared later."""
    above = {"experiment", "cuts", "cells", "variants", "seed", "source", "fault", "load", "output"}
    assert {*CampaignRequest.__struct_fields__} == above | {"resume", "matrix"}


def test_prepared_campaign_has_all_that_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[set[str], str, str]] = []

    def servers_of(wanted: Any, source: str, system: str) -> dict[str, Server]:
        asked.append(({server_name(*pair) for pair in wanted}, source, system))
        return {"both": Server(Path("/at/both"), EXAMPLE.builds["both"], fresh=False)}

    monkeypatch.setattr(builder, "servers_of", servers_of)
    monkeypatch.setattr(rights, "check", lambda: None)
    monkeypatch.setattr(sandbox, "kind", lambda *, guest: "bwrap" if guest else "none")
    monkeypatch.setattr(checkout, "files", lambda: "code")
    monkeypatch.setattr(checkout, "drive_program", lambda: "program")
    plan = planned(CampaignRequest(cells=FEW, variants=("both",), source="17", cuts=5, seed=3))
    prepared = prepare(plan)
    assert asked == [({"both"}, "17", "auto")]
    for field in set(CampaignPlan.__struct_fields__) - {"folder", "resumed"}:
        assert getattr(prepared.campaign, field) == getattr(plan, field), field
    assert prepared.campaign.source == "17"
    machine = msgspec.structs.replace(provenance.machine(), sandbox="bwrap")
    assert prepared.campaign.machine == machine
    assert prepared.guest
    assert prepared.campaign.lab == provenance.lab_state() | {"files": "code"}
    assert prepared.campaign.drive_program == "program"
    assert prepared.servers == {"both": Path("/at/both")}
