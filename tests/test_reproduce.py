"""Samples measured again: what differs is found, and what is not the same here is named."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_difference import VIRTUAL

from wallab import paths
from wallab.command import reproduce
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.machine import checkout
from wallab.record import manifest as manifests
from wallab.record.experiment import Cell
from wallab.record.manifest import BedReport, Manifest
from wallab.record.samples import SAMPLES, Sample
from wallab.servers import labtree
from wallab.virtual import inputs, reproduction
from wallab.virtual.reproduction import Difference

EXAMPLE = paths.LAB / "results" / "example-quick"


def virtual(**changed: Any) -> Manifest:
    """The manifest of a run as a virtual machine's."""
    known = manifests.load(EXAMPLE)
    machine = msgspec.structs.replace(
        VIRTUAL, emulator="QEMU 7.2", kernel="6.1.0-1", packages={"seabios": "1"},
        servers=dict.fromkeys(known.builds, "5e"), templates={"18-50": "7e"},
    )  # fmt: skip
    fields = {
        "virtual": machine, "template_memory": {"18-50": "3e"},
        "lab": known.lab | {"files": "1a", "commit": "c0ffee", "changed": "no"}, **changed,
    }  # fmt: skip
    return msgspec.structs.replace(known, **fields)


def with_machine(**changed: Any) -> Manifest:
    """The same with other parts of the machine."""
    manifest = virtual()
    assert manifest.virtual is not None
    return virtual(virtual=msgspec.structs.replace(manifest.virtual, **changed))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with nine samples."""
    folder = tmp_path / "run"
    folder.mkdir()
    jsonfile.save(folder / manifests.FILE, virtual())
    lines = (EXAMPLE / SAMPLES).read_bytes().splitlines()[:9]
    samples = [jsonfile.dumps(jsonfile.loads(line, Sample)) for line in lines]
    (folder / SAMPLES).write_bytes(b"".join(line + b"\n" for line in samples))
    return folder


# --- which samples, and how they differ -----------------------------------------------------


@pytest.mark.parametrize(
    ("count", "numbers"), [(1, [1]), (3, [1, 4, 7]), (9, list(range(1, 10))), (50, range(1, 10))]
)
def test_samples_are_spread_over_the_run(run: Path, count: int, numbers: Any) -> None:
    assert [line.number for line in reproduction.chosen(run, count)] == list(numbers)


def test_a_run_without_samples_is_refused(run: Path) -> None:
    (run / SAMPLES).unlink()
    with pytest.raises(LabError, match="no samples in it yet"):
        reproduction.chosen(run, 3)


def test_a_damaged_line_is_named(run: Path) -> None:
    lines = (run / SAMPLES).read_bytes().splitlines()
    lines[3] = b"{"
    (run / SAMPLES).write_bytes(b"\n".join(lines))
    with pytest.raises(LabError, match=r"samples\.jsonl, line 4"):
        reproduction.chosen(run, 3)


class Bed:
    """Measures what it is told, but where a difference was planted."""

    def __init__(self, run: Path, planted: dict[int, Any]) -> None:
        self.methods: dict[str, tuple[str, ...]] = {}
        self.closed = False
        self._planted = planted
        self._lines = (run / SAMPLES).read_bytes().splitlines()

    def open(self) -> BedReport:
        return BedReport({}, {}, None, {"18-50": "3e"})

    def lacks(self, cell: Cell) -> str:
        return ""

    def sample(
        self, cell: Cell, round_number: int, position: int, *, control: bool = False
    ) -> Sample:
        for number, line in enumerate(self._lines, 1):
            sample = jsonfile.loads(line, Sample)
            if (sample.cell, sample.round) == (cell, round_number):
                known = jsonfile.loads(line, dict[str, Any])
                if number in self._planted:
                    self._planted[number](known)
                # The bed knows nothing of controls.
                return msgspec.structs.replace(
                    jsonfile.loads(jsonfile.dumps(known), Sample), control=False
                )
        raise AssertionError(cell)

    def close(self) -> None:
        self.closed = True


def nanosecond(sample: Any) -> None:
    """A drive's counter is another by one."""
    sample["drive"]["wal"]["counters"]["busy_ns"] += 1


def last_digit(sample: Any) -> None:
    """The TPS' last digit is another."""
    sample["figures"]["tps"] += 1e-9


def missing(sample: Any) -> None:
    """A counter is not there."""
    del sample["drive"]["wal"]["counters"]["busy_ns"]


def found(run: Path, planted: dict[int, Any]) -> dict[int, Difference | None]:
    """What is found of all samples."""
    bed = Bed(run, planted)
    lines = reproduction.chosen(run, 9)
    differing = {
        line.number: difference for line, difference in reproduction.compared(bed, lines, 2)
    }
    assert bed.closed
    return differing


def test_same_samples_are_the_same_bytes(run: Path) -> None:
    assert found(run, {}) == dict.fromkeys(range(1, 10))


@pytest.mark.parametrize(
    ("plant", "field"),
    [
        (nanosecond, "drive.wal.counters.busy_ns"),
        (missing, "drive.wal.counters.busy_ns"),
        (last_digit, "figures.tps"),
    ],
)
def test_a_difference_is_found_where_it_was_planted(run: Path, plant: Any, field: str) -> None:
    differing = found(run, {5: plant})
    assert [number for number, what in differing.items() if what] == [5]
    known = differing[5]
    assert known is not None
    assert known.field == field
    assert known.run != known.here
    sample = jsonfile.loads((run / SAMPLES).read_bytes().splitlines()[4], dict[str, Any])
    value: Any = sample
    for part in field.split("."):
        value = value[part]
    assert known.run == value


@pytest.mark.parametrize(
    ("run", "other", "field"),
    [
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', ""),
        (b'{"a":1}', b'{"a":1.0}', "a"),
        (b'{"a":[1,2]}', b'{"a":[1,3]}', "a.1"),
        (b'{"a":[1,2]}', b'{"a":[1]}', "a"),
        (b'{"a":1}', b'{"a":1,"b":true}', "b"),
        (b'{"a":0}', b'{"a":false}', "a"),
    ],
)
def test_no_difference_of_bytes_is_overlooked(run: bytes, other: bytes, field: str) -> None:
    assert reproduction.difference(run, run) is None
    known = reproduction.difference(run, other)
    assert known is not None
    assert known.field == field


# --- inputs ---------------------------------------------------------------------------------


def test_same_inputs_are_the_same() -> None:
    assert inputs.differing(virtual(), virtual()) == []
    fewer = with_machine(servers={"both": "5e"}, templates={}, memory_mb=(1,))
    assert inputs.differing(virtual(), fewer) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"emulator": "QEMU 9", "emulator_sha256": "ff"},
         "the emulator: QEMU 7.2 (sha256 01) in the run, QEMU 9 (sha256 ff) here"),
        ({"turns": "u"}, "the emulator's turns: sha256 t in the run, sha256 u here"),
        ({"firmware_sha256": "ff"}, "the firmware: sha256 02 in the run, sha256 ff here"),
        ({"kernel": "6.2", "kernel_sha256": "ff"},
         "the kernel: 6.1.0-1 (sha256 02) in the run, 6.2 (sha256 ff) here"),
        ({"first_sha256": "ff"}, "the first file system: sha256 03 in the run, sha256 ff here"),
        ({"root_sha256": "ff"}, "the root file system: sha256 04 in the run, sha256 ff here"),
        ({"packages": {"seabios": "2"}}, "the package seabios: 1 in the run, 2 here"),
        ({"templates": {"18-50": "ff"}},
         "the recipe of the template 18-50: sha256 7e in the run, sha256 ff here"),
    ],
)  # fmt: skip
def test_another_part_of_the_machine_is_named(changed: dict[str, Any], words: str) -> None:
    assert inputs.differing(virtual(), with_machine(**changed)) == [words]


def test_another_server_is_named_with_its_compiler() -> None:
    here = with_machine(servers={"both": "ff"})
    known = here.builds["both"]
    here.builds = here.builds | {"both": msgspec.structs.replace(known, compiler="cc 99")}
    (words,) = inputs.differing(virtual(), here)
    assert words.startswith(f"the server both: {known.version} ")
    assert f"by {known.compiler} (sha256 5e) in the run" in words
    assert words.endswith("by cc 99 (sha256 ff) here")


def test_the_lab_its_drive_and_its_parameters_are_named() -> None:
    here = virtual(lab=virtual().lab | {"files": "ff", "commit": "decade"}, drive_program="ff")
    here.drives = {**here.drives, "wal": here.drives["wal"] | {"rpm": "1"}}
    lab, program, drive = inputs.differing(virtual(), here)
    assert lab.startswith("the lab: ")
    assert "commit c0ffee (sha256 1a) in the run" in lab
    assert "commit decade (sha256 ff) here" in lab
    assert program.startswith("the drive's program: ")
    assert drive == "the parameters of the drive wal"


def test_every_field_of_the_machine_is_decided_on() -> None:
    """A new one is an input that is named, or follows from others."""
    above = {
        "emulator", "emulator_sha256", "turns", "firmware_sha256", "kernel", "kernel_sha256",
        "first_sha256", "root_sha256", "packages", "servers", "templates",
    }  # fmt: skip
    # Of the experiment; and the options are in the templates' recipes.
    follow = {"mips", "memory_mb", "options"}
    assert {*VIRTUAL.__struct_fields__} == above | follow


def test_a_template_that_becomes_another_one_is_named() -> None:
    assert inputs.of_memory(virtual(), {"18-50": "3e"}) == []
    assert inputs.of_memory(virtual(), {}) == []
    (words,) = inputs.of_memory(virtual(), {"18-50": "ff"})
    assert words == "the memory of the template 18-50: sha256 3e in the run, sha256 ff here"


# --- the command ----------------------------------------------------------------------------


class Made:
    """In the place of a reproduction: its bed is the planted one."""

    planted: dict[int, Any]
    run: Path

    def __init__(self, manifest: Manifest, lines: Any, jobs: int | None) -> None:
        self._lines = lines

    def differences(self) -> Any:
        return reproduction.compared(Bed(self.run, self.planted), self._lines, 1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, run: Path) -> type[Made]:
    """The command with that, as the lab of the run."""
    monkeypatch.setattr(reproduce, "Reproduction", Made)
    monkeypatch.setattr(reproduce, "compile_programs", lambda: None)
    monkeypatch.setattr(checkout, "files", lambda: "1a")
    monkeypatch.setattr(Made, "run", run, raising=False)
    monkeypatch.setattr(Made, "planted", {}, raising=False)
    return Made


def asked(*arguments: str | Path) -> int:
    """The exit code of the command."""
    with reproduce.command.make_context("reproduce", list(map(str, arguments))) as context:
        code: int = reproduce.command.invoke(context)
    return code


def test_the_same_bytes_end_with_0(
    made: type[Made], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["sample 1", "sample 4", "sample 7"]
    assert all("the same" in line for line in lines)


def test_a_difference_ends_with_1_and_both_values(
    made: type[Made], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.planted = {4: nanosecond}
    assert asked(run) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("sample 4, round ")
    sample = jsonfile.loads((run / SAMPLES).read_bytes().splitlines()[3], Sample)
    busy = sample.drive["wal"].counters["busy_ns"]
    assert last.endswith(f"drive.wal.counters.busy_ns: {busy} in the run, {busy + 1} here")
    assert asked(run, "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed == {
        "same": [1],
        "different": {
            "sample": 4, "field": "drive.wal.counters.busy_ns", "run": busy, "here": busy + 1,
        },
    }  # fmt: skip


def test_real_time_cannot_be_measured_again() -> None:
    with pytest.raises(LabError, match="measured in real time"):
        asked(EXAMPLE)


def test_a_lab_that_is_not_to_be_had_is_named(
    made: type[Made], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "files", lambda: "ff")
    with pytest.raises(MachineError, match="commit c0ffee, is unknown here; git fetch"):
        asked(run)
    jsonfile.save(run / manifests.FILE, virtual(lab=virtual().lab | {"changed": "yes"}))
    with pytest.raises(MachineError, match="had changes that no commit has"):
        asked(run)


# --- the lab of a commit --------------------------------------------------------------------


GIT = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A checkout of two commits whose command says which it is, with a server; its commits."""
    home = tmp_path / "lab"
    command = home / "wallab" / "command"
    command.mkdir(parents=True)
    (home / "requirements.txt").write_text("")
    for name in ("wallab", "wallab/command"):
        (home / name / "__init__.py").write_text("")
    (home / ".gitignore").write_text("build/\n__pycache__/\n")
    subprocess.run([*GIT, "init", "--quiet", home], check=True)
    commits = []
    for word in ("old", "new"):
        (command / "reproduce.py").write_text(
            f"import json, os, sys\nprint(json.dumps(['{word}', os.getcwd(), sys.argv[1:]]))\n"
        )
        subprocess.run([*GIT, "-C", home, "add", "--all"], check=True)
        subprocess.run([*GIT, "-C", home, "commit", "--quiet", "-m", word], check=True)
        printed = subprocess.run(
            [*GIT, "-C", home, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        )
        commits.append(printed.stdout.strip())
    for variant in ("both", "stock"):
        server = home / "build" / "18.6" / variant
        server.mkdir(parents=True)
        build = msgspec.structs.replace(virtual().builds["both"], key=variant)
        jsonfile.save(server / "build.json", build)
        (server / "postgres").write_text(variant)
    monkeypatch.setattr(paths, "LAB", home)
    monkeypatch.setattr(paths, "BUILD", home / "build")
    monkeypatch.setenv("WALLAB_CACHE", str(tmp_path / "cache"))
    return home, commits


def as_lab(home: Path, commit: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Go on as the lab of the commit, in a process of its own, which becomes it."""
    program = (
        "import sys; from pathlib import Path; from wallab import paths; from wallab.files import "
        "jsonfile; from wallab.record.build import Build; from wallab.servers import labtree\n"
        "paths.LAB = Path(sys.argv[1]); paths.BUILD = paths.LAB / 'build'\n"
        "build = jsonfile.load(paths.BUILD / '18.6/both/build.json', Build)\n"
        "labtree.run(sys.argv[2], 'wallab.command.reproduce', 'RUN', builds=[build])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, home, commit], cwd=EXAMPLE.parents[1],
        env=os.environ | environment, capture_output=True, text=True,
    )  # fmt: skip


def trees(tmp_path: Path) -> list[str]:
    """The work trees in the cache."""
    return sorted(entry.name for entry in (tmp_path / "cache" / "labs").iterdir() if entry.is_dir())


def test_a_run_goes_on_as_the_lab_that_measured_it(
    lab: tuple[Path, list[str]], tmp_path: Path
) -> None:
    home, (old, new) = lab
    done = as_lab(home, old)
    assert done.returncode == 0, done.stderr
    tree = tmp_path / "cache" / "labs" / old
    assert json.loads(done.stdout) == ["old", str(tree), ["RUN"]]
    # The server that it would build comes along, and no other.
    assert (tree / "build/18.6/both/postgres").samefile(home / "build/18.6/both/postgres")
    assert not (tree / "build/18.6/stock").exists()
    # What somebody changed there does not count.
    (tree / "wallab/command/reproduce.py").write_text("print('changed')")
    assert json.loads(as_lab(home, old).stdout)[0] == "old"
    # It goes when another is asked for.
    assert json.loads(as_lab(home, new).stdout)[0] == "new"
    assert trees(tmp_path) == [new]
    listed = subprocess.run(
        [*GIT, "-C", home, "worktree", "list"], check=True, capture_output=True, text=True
    )
    assert old not in listed.stdout


def test_a_lab_that_is_at_work_stays(lab: tuple[Path, list[str]], tmp_path: Path) -> None:
    home, (old, new) = lab
    assert as_lab(home, old).returncode == 0
    with (tmp_path / "cache" / "labs" / f"{old}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert as_lab(home, new).returncode == 0
        assert trees(tmp_path) == sorted([old, new])


def test_a_lab_of_before_the_command_is_named(lab: tuple[Path, list[str]]) -> None:
    _, (old, _) = lab
    with pytest.raises(MachineError, match=f"the lab of commit {old} has no review yet"):
        labtree.run(old, "wallab.command.review", builds=())


def test_whether_this_is_the_lab_is_told_by_what_can_move_a_number(
    lab: tuple[Path, list[str]],
) -> None:
    home, (old, new) = lab
    assert labtree.is_known(old)
    assert not labtree.is_known("c0ffee" * 6 + "0000")
    assert not labtree.is_known("HEAD")
    assert labtree.is_here(new)
    assert not labtree.is_here(old)
    (home / "notes").write_text("of no moment")
    assert labtree.is_here(new)
    (home / "requirements.txt").write_text("other==1")
    assert not labtree.is_here(new)
