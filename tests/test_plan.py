"""What a new or a resumed run is, decided without a command line, a server or a drive."""

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from wallab import paths
from wallab.bench import provenance, run
from wallab.bench.plan import RunPlan, RunRequest, directories_of, planned, prepare
from wallab.drives import real as realdrive
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import checkout, rights, sandbox
from wallab.record import manifest as manifests
from wallab.record import matrix, reference, series
from wallab.record.conditions import server_name
from wallab.record.manifest import Manifest
from wallab.servers import builder, prebuilt
from wallab.servers.builder import Server

EXAMPLE = manifests.load(paths.LAB / "results" / "example-quick")


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for results."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def kept(plan: RunPlan, **changed: Any) -> Path:
    """Keep the manifest of a run that was planned like this; return its folder."""
    manifest = msgspec.structs.replace(
        EXAMPLE, name=plan.name, preset_name=plan.preset_name, seed=plan.seed,
        experiment=plan.experiment, preset=plan.preset, cells=plan.cells,
    )  # fmt: skip
    plan.folder.mkdir(parents=True)
    jsonfile.save(plan.folder / manifests.FILE, msgspec.structs.replace(manifest, **changed))
    return plan.folder


def again(plan: RunPlan, **asked: Any) -> RunPlan:
    """The plan of a run that goes on where one that was planned like this has ended."""
    return planned(RunRequest(resume=str(kept(plan)), **asked))


def as_resumed(plan: RunPlan) -> RunPlan:
    """What going on with the plan has to be."""
    return msgspec.structs.replace(plan, resumed=True)


# --- new runs -------------------------------------------------------------------------------


def test_nothing_asked_for(results: Path) -> None:
    plan = planned(RunRequest())
    assert (plan.name, plan.preset_name, plan.resumed) == ("thread", "quick", False)
    assert plan.folder.parent == results
    assert plan.folder.name.endswith("-thread")
    assert not plan.folder.exists()
    experiment, preset = matrix.choose(matrix.read(), "thread", "quick")
    assert (plan.experiment, plan.preset) == (experiment, preset)
    assert plan.cells == tuple(matrix.cells(experiment, preset))


def test_seed_is_drawn_unless_it_is_named() -> None:
    assert planned(RunRequest(seed=0)).seed == 0
    assert len({planned(RunRequest()).seed for _ in range(4)}) > 1


def test_options_change_the_preset() -> None:
    plan = planned(RunRequest(preset="smoke", rounds=9, precision=4.5, control=True))
    own = plan.experiment.preset["smoke"]
    assert plan.preset == msgspec.structs.replace(
        own, rounds=9, precision=4.5, control=plan.cells[0]
    )


def test_control_of_the_preset_is_kept_where_its_cell_is_measured() -> None:
    plan = planned(RunRequest(preset="full", control=True))
    assert plan.preset.control == {"variant": "both", "write_cache": "off", "sync": "open_direct"}


def test_control_whose_variant_is_left_out_is_another_cell() -> None:
    plan = planned(RunRequest(preset="full", variants=("stock", "baseline")))
    assert plan.experiment.axes["variant"] == ("stock", "baseline")
    assert {cell["variant"] for cell in plan.cells} == {"stock", "baseline"}
    assert plan.preset.control == plan.cells[0]


@pytest.mark.parametrize("preset", ["full", "quick"])
def test_real_drives_of_variants_that_leave_a_control_out(preset: str, tmp_path: Path) -> None:
    """The control of any preset, also of one that is not measured."""
    plan = planned(
        RunRequest(
            preset=preset, variants=("stock",), drive="directory", directories=(str(tmp_path),)
        )
    )
    assert {cell["write_cache"] for cell in plan.cells} == {"as-is"}
    assert plan.preset.control == (plan.cells[0] if preset == "full" else None)
    assert again(plan) == as_resumed(plan)


def test_variants_that_leave_out_what_the_others_are_relative_to(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(
        paths.MATRIX.read_text()
        .replace('rows = ["variant", "write_cache"]', 'rows = ["sync", "write_cache"]', 1)
        .replace('column = "sync"', 'column = "variant"', 1)
        .replace('relative_to = "fsync=false"', 'relative_to = "both"', 1)
    )
    chosen = RunRequest(preset="smoke", matrix=file, variants=("both", "stock"))
    assert planned(chosen).experiment.relative_to == "both"
    left_out = msgspec.structs.replace(chosen, variants=("stock", "baseline"))
    assert planned(left_out).experiment.relative_to is None


def test_variants_take_all_that_the_preset_measures_of_any() -> None:
    plan = planned(RunRequest(preset="quick", variants=("committed",)))
    assert {cell["write_cache"] for cell in plan.cells} == {"off", "on", "on-unflushed"}


def test_source_is_the_experiments_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(RunRequest()).experiment.source == "18"
    assert planned(RunRequest(source="/srv/pg")).experiment.source == "/srv/pg"
    monkeypatch.setattr(prebuilt, "default_source", lambda: "/of/the/image")
    assert planned(RunRequest()).experiment.source == "/of/the/image"
    assert planned(RunRequest(source="17")).experiment.source == "17"


@pytest.mark.parametrize("kind", ["device", "directory"])
def test_real_drives(kind: Any, tmp_path: Path) -> None:
    plan = planned(RunRequest(preset="smoke", drive=kind, directories=(str(tmp_path),)))
    assert {drive.kind for drive in plan.experiment.drive.values()} == {kind}
    assert {drive.directory for drive in plan.experiment.drive.values()} == {str(tmp_path)}
    caches = {cell["write_cache"] for cell in plan.cells}
    assert caches == ({"as-is"} if kind == "directory" else {"off"})


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (RunRequest(experiment="nosuch"), "no experiment “nosuch”; there are thread"),
        (RunRequest(preset="nosuch"), "no preset “nosuch”; it has full, quick, smoke"),
        (RunRequest(matrix=Path("/nonexistent.toml")), "no such file"),
        (RunRequest(output=Path("/etc")), "/etc is there already; name another --output"),
        (RunRequest(experiment="smp", source="17"), "compares sources, so --source cannot"),
        (RunRequest(variants=("bath",)), "--variants: axes.variant: unknown value “bath”"),
        (RunRequest(experiment="smp", variants=("both",)), "--variants: .* has no axis variant"),
        (RunRequest(directories=("/x",)), "--directory: takes --drive device or"),
        (RunRequest(drive="simulated", directories=("/x",)), "--directory: takes --drive device"),
        (RunRequest(drive="device"), "--drive: name the directory"),
        (RunRequest(mips=300), "--mips: a real machine has its own"),
        (RunRequest(resume="nosuch"), "no run “nosuch”"),
    ],
)
def test_what_does_not_fit_is_refused(request_: RunRequest, words: str) -> None:
    with pytest.raises(LabError, match=words):
        planned(request_)


# --- resumed runs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"experiment": "archive", "preset": "smoke"},
        {"preset": "smoke", "rounds": 9, "precision": 4.5, "control": True},
        {"preset": "full"},
        {"preset": "full", "variants": ("stock", "baseline")},
        {"source": "/srv/pg"},
        {"experiment": "smp"},
        {"machine": "virtual"},
        {"machine": "virtual", "mips": 300},
        {"preset": "smoke", "drive": "device", "directories": ("/x",)},
        {"preset": "smoke", "drive": "directory", "directories": ("wal=/x", "data=/y")},
        {"preset": "smoke", "drive": "directory", "directories": ("/x",), "variants": ("both",)},
    ],
)
def test_resumed_run_is_planned_as_it_was(asked: dict[str, Any]) -> None:
    plan = planned(RunRequest(**asked))
    assert again(plan) == as_resumed(plan)


def test_options_may_say_again_what_the_run_has() -> None:
    plan = planned(RunRequest(preset="smoke", variants=("both",), source="17", seed=7))
    resumed = again(
        plan, experiment="thread", preset="smoke", variants=("both",), source="17", seed=7,
        output=plan.folder,
    )  # fmt: skip
    assert resumed == as_resumed(plan)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"experiment": "archive"}, "“archive”: the run to resume has its own"),
        ({"preset": "full"}, "--preset: the run to resume has its own"),
        ({"seed": 8}, "--seed: the run to resume has its own"),
        ({"output": Path("elsewhere")}, "--output: the run to resume has its own"),
        ({"source": "17"}, "--source: the run to resume has its own"),
        ({"variants": ("stock",)}, "--variants: the run to resume has its own"),
        ({"machine": "virtual"}, "--machine: the run to resume has its own"),
        ({"mips": 300}, "--mips: the run to resume has its own"),
        ({"rounds": 3}, "--rounds, --precision and --control are those of the run"),
        ({"precision": 3.0}, "--rounds, --precision and --control are those of the run"),
        ({"control": True}, "--rounds, --precision and --control are those of the run"),
        ({"drive": "simulated"}, "--drive and --directory are those of the run"),
        ({"directories": ("/x",)}, "--drive and --directory are those of the run"),
    ],
)
def test_options_may_not_change_a_run(asked: dict[str, Any], words: str) -> None:
    plan = planned(RunRequest(preset="smoke", seed=7))
    with pytest.raises(LabError, match=words):
        again(plan, **asked)


def test_every_option_is_decided_on_where_a_run_is_resumed() -> None:
    """A new one has to be added to the tests above, or here: what does not change the run."""
    above = {
        "experiment", "preset", "seed", "output", "source", "variants", "rounds", "precision",
        "control", "drive", "directories", "machine", "mips",
    }  # fmt: skip
    # The builds' keys and the experiment are compared once they are there.
    later = {"build_system", "matrix"}
    assert {*RunRequest.__struct_fields__} == above | later | {"resume"}


def test_another_matrix_is_another_run(tmp_path: Path) -> None:
    """The plan is made of the matrix.toml of today: what differs is for the run to see."""
    plan = planned(RunRequest(preset="smoke"))
    file = tmp_path / "matrix.toml"
    file.write_text(paths.MATRIX.read_text().replace('commit_delay = "500"', 'commit_delay = "0"'))
    assert again(plan, matrix=file).experiment.settings["commit_delay"] == "0"


# --- prepared -------------------------------------------------------------------------------


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Have servers without building them; return the sources and build systems asked for."""
    asked: list[tuple[str, str]] = []

    def servers_of(wanted: Any, source: str, system: str) -> dict[str, Server]:
        asked.append((source, system))
        build = EXAMPLE.builds["both"]
        names = [server_name(*pair) for pair in wanted]
        return {name: Server(Path("/at") / name, build, fresh=False) for name in names}

    monkeypatch.setattr(builder, "servers_of", servers_of)
    monkeypatch.setattr(rights, "check", lambda: None)
    monkeypatch.setattr(sandbox, "kind", lambda *, guest: "bwrap" if guest else "container")
    monkeypatch.setattr(checkout, "files", lambda: "code")
    monkeypatch.setattr(checkout, "drive_program", lambda: "program")
    return asked


def test_prepared_run_has_all_that_it_was_asked_for(built: list[tuple[str, str]]) -> None:
    plan = planned(RunRequest(preset="smoke", source="17", build_system="autoconf", seed=3))
    prepared = prepare(plan)
    assert built == [("17", "autoconf")]
    manifest: Manifest = prepared.manifest
    for field in ("name", "preset_name", "experiment", "preset", "cells", "seed"):
        assert getattr(manifest, field) == getattr(plan, field), field
    assert manifest.builds.keys() == prepared.servers.keys()
    assert prepared.servers["both"] == Path("/at/both")
    assert manifest.drives["wal"]["profile"] == "ata-2005"
    assert manifest.lab["commit"]
    assert (manifest.lab["files"], manifest.drive_program) == ("code", "program")


@pytest.mark.usefixtures("built")
def test_what_servers_run_in_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a stranger's decides for all; a virtual machine's guest is a sandbox by itself."""
    plan = planned(RunRequest(preset="smoke"))
    prepared = prepare(plan)
    assert (prepared.guest, prepared.manifest.machine.sandbox) == (True, "bwrap")
    trusting = builder.servers_of
    last: list[str] = []

    def mostly_trusted(*asked: Any) -> dict[str, Server]:
        servers = trusting(*asked)
        known = {name: msgspec.structs.replace(s, guest=False) for name, s in servers.items()}
        return known | {name: servers[name] for name in last}

    monkeypatch.setattr(builder, "servers_of", mostly_trusted)
    prepared = prepare(plan)
    assert (prepared.guest, prepared.manifest.machine.sandbox) == (False, "container")
    last.append("both")
    prepared = prepare(plan)
    assert (prepared.guest, prepared.manifest.machine.sandbox) == (True, "bwrap")
    assert prepare(planned(RunRequest(machine="virtual"))).manifest.machine.sandbox == ""


@pytest.mark.usefixtures("built")
def test_each_source_has_its_servers() -> None:
    plan = planned(RunRequest(experiment="smp"))
    assert set(prepare(plan).servers) == {"15/stock", "17/stock", "18/stock"}


@pytest.mark.usefixtures("built")
def test_real_drives_are_described(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(realdrive, "describe", lambda folder: {"at": str(folder)})
    plan = planned(RunRequest(preset="smoke", drive="directory", directories=(str(tmp_path),)))
    manifest = prepare(plan).manifest
    assert manifest.drives["wal"] == {"kind": "directory", "at": str(tmp_path)}
    assert manifest.drive_program == ""


@pytest.mark.usefixtures("built")
def test_an_elevator_is_noted_among_its_drives_parameters(tmp_path: Path) -> None:
    text = paths.MATRIX.read_text().replace(
        'profile = "ata-2005"', 'profile = "ata-2005"\nelevator = "anticipatory"', 1
    )
    (tmp_path / "matrix.toml").write_text(text)
    manifest = prepare(planned(RunRequest(matrix=tmp_path / "matrix.toml"))).manifest
    assert manifest.experiment.drive["wal"].elevator == "anticipatory"
    assert manifest.drives["wal"]["scheduler"] == "anticipatory"
    assert manifest.drives["data"]["scheduler"] == "clook"


def test_rights_are_looked_at_before_anything_is_built(
    built: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise LabError("as root")

    monkeypatch.setattr(run, "check_rights_for", refuse)
    with pytest.raises(LabError, match="as root"):
        prepare(planned(RunRequest()))
    assert built == []


def test_prepared_run_says_when_where_and_how_its_tables_are_written(
    built: list[tuple[str, str]],
) -> None:
    assert built == []
    plan = planned(RunRequest(preset="smoke"))
    manifest = prepare(plan).manifest
    assert manifest.started.startswith("20")
    assert manifest.machine.memory_kb > 0
    assert manifest.methods == {}
    assert manifest.titles == provenance.titles(plan.experiment.axes) != {}
    variants = plan.experiment.axes["variant"]
    assert manifest.direct == series.direct_methods(series.read(), variants) != {}


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(("machine", "servers"), [("virtual", {"both", "stock"}), (None, {"both"})])
def test_templates_of_virtual_time_take_stock(
    machine: Literal["virtual"] | None, servers: set[str]
) -> None:
    plan = planned(RunRequest(preset="smoke", variants=("both",), machine=machine))
    assert plan.experiment.machine == (machine or "real")
    assert set(prepare(plan).servers) == servers


def test_speed_of_a_virtual_machine() -> None:
    assert planned(RunRequest(machine="virtual")).experiment.mips == 1000
    plan = planned(RunRequest(machine="virtual", mips=300))
    assert plan.experiment.mips == 300
    folder = str(kept(plan))
    assert planned(RunRequest(resume=folder, mips=300)) == as_resumed(plan)
    with pytest.raises(LabError, match="--mips: the run to resume has its own"):
        planned(RunRequest(resume=folder, mips=1000))


def test_machine_of_a_resumed_run() -> None:
    plan = planned(RunRequest(preset="smoke"))
    folder = str(kept(plan))
    real = planned(RunRequest(resume=folder, machine="real"))
    assert real == as_resumed(plan)
    with pytest.raises(LabError, match="--machine: the run to resume has its own"):
        planned(RunRequest(resume=folder, machine="virtual"))


def test_seeds_are_numbers_of_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbits", {32: 7}.__getitem__)
    assert planned(RunRequest()).seed == 7


def test_published_figures_are_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(reference, "load", lambda *given: asked.append(given))
    plan = planned(RunRequest())
    assert asked == [("thread", plan.experiment.axes)]


@pytest.mark.parametrize(
    ("named", "directories"),
    [
        (("wal=/a=b", "data=/c"), {"wal": "/a=b", "data": "/c"}),
        (("/a",), {"wal": "/a", "data": "/a"}),
        (("/x=/a",), {"wal": "/x=/a", "data": "/x=/a"}),
    ],
)
def test_directories_of_drives(named: tuple[str, ...], directories: dict[str, str]) -> None:
    assert directories_of(named, ("wal", "data")) == directories


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (("wal=", "data=/c"), "--directory wal=: expected wal=DIR or data=DIR"),
        (("x=/a", "data=/c"), "--directory x=/a: expected wal=DIR or data=DIR"),
        (("wal=/a",),
         "--drive: name the directory on the drive with --directory DIR, or data=DIR"),
    ],
)  # fmt: skip
def test_directories_that_are_none(named: tuple[str, ...], words: str) -> None:
    with pytest.raises(LabError) as refused:
        directories_of(named, ("wal", "data"))
    assert str(refused.value) == words
