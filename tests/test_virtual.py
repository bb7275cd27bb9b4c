"""The virtual machine: what it is asked for, what names it, and a run of it."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.record import manifest, matrix
from wallab.record.experiment import Experiment, Preset
from wallab.record.samples import SAMPLES, SampleFile
from wallab.virtual import bed, kernel, message, qemu, speed, template
from wallab.virtual.emulator import Machine
from wallab.virtual.qemu import Qemu

PATIENCE = 1500
"""Seconds that a run of the machine may take; it takes a minute on an idle one."""


def chosen() -> tuple[Experiment, Preset]:
    """The thread's experiment at preset smoke, on a virtual machine."""
    experiment, preset = matrix.choose(matrix.read(), "thread", "smoke")
    return msgspec.structs.replace(experiment, machine="virtual"), preset


def test_an_order_arrives_as_it_was_sent() -> None:
    experiment, preset = chosen()
    cells = tuple(matrix.cells(experiment, preset))
    order = message.Order(
        kind="sample", experiment=experiment, preset=preset, server="both", cells=cells,
        round=3, position=7, seed=2**32 - 1, wait_ns=99_999_999,
    )  # fmt: skip
    assert message.unpacked(message.packed(order) + bytes(1000)) == order


def test_a_template_is_one_for_all_cells_on_its_drives() -> None:
    experiment, preset = chosen()
    cells = matrix.cells(experiment, preset)
    orders = {
        jsonfile.dumps(
            template.order_of(
                experiment, preset, matrix.conditions(experiment, preset, cell), "stock"
            )
        )
        for cell in cells
    }
    assert len(cells) > 1
    assert len(orders) == 1


@pytest.mark.parametrize("name", sorted(matrix.read().experiment))
def test_every_experiment_has_templates(name: str) -> None:
    """Of all its presets; what no virtual machine has is (N/A) in words."""
    experiment = matrix.read().experiment[name]
    lacking = set()
    for preset in experiment.preset.values():
        for cell in matrix.cells(experiment, preset):
            conditions = matrix.conditions(experiment, preset, cell)
            if reason := bed._lacking(conditions):
                lacking.add(reason)
                continue
            order = template.order_of(experiment, preset, conditions, "stock")
            assert message.unpacked(message.packed(order)) == order
            (own,) = order.cells
            assert matrix.conditions(order.experiment, order.preset, own).drive_kinds == (
                conditions.drive_kinds
            )
    expected = {
        "smp": {"the virtual machine has one processor"},
        "file-systems": {
            "the virtual machine has no bonnie++ yet", "the virtual machine has no sysbench yet",
        },
    }  # fmt: skip
    assert lacking == expected.get(name, set())


def test_what_a_run_is_called_and_how_long_it_is_make_no_other_template() -> None:
    experiment, preset = chosen()
    cell = matrix.cells(experiment, preset)[0]
    conditions = matrix.conditions(experiment, preset, cell)
    order = template.order_of(experiment, preset, conditions, "stock")
    other = msgspec.structs.replace(experiment, title="other", notes=("n",), reference=None)
    longer = msgspec.structs.replace(preset, about="x", rounds=9, seconds=60, precision=1.0)
    assert template.order_of(other, longer, conditions, "stock") == order
    wider = msgspec.structs.replace(experiment, settings=experiment.settings | {"jit": "off"})
    assert template.order_of(wider, preset, conditions, "stock") != order


def test_options_name_no_folder_of_this_machine(tmp_path: Path) -> None:
    def options(home: Path) -> tuple[str, ...]:
        machine = Machine(
            qemu=Qemu(home / "bin" / "qemu", {"LD_LIBRARY_PATH": str(home)}, {}),
            kernel=home / "vmlinuz",
            first=home / "first", root=home / "a" / "image",
            server=home / "b" / "image", orders=home / "orders", ram=home / "ram",
            memory_mb=2048, mips=250,
        )  # fmt: skip
        return machine.options()

    assert options(tmp_path / "here") == options(tmp_path / "elsewhere, with a comma")
    assert "shift=2,sleep=off,align=off" in options(tmp_path)
    assert not [word for word in options(tmp_path) if str(tmp_path) in word]


def test_every_mips_is_a_share_of_a_power_of_two() -> None:
    for mips in range(1, speed.FASTEST + 1):
        whole = speed.FASTEST / 2 ** speed.shift(mips)
        assert speed.shift(mips) in range(11)
        assert mips <= whole < 2 * mips
        quota, period = speed.share(mips) or (1000, 1000)
        assert whole * quota / period == pytest.approx(mips, rel=0.0005)
        # The kernel's least; no longer than is needed.
        assert quota == 1000
        assert 1000 <= period < 2000


@pytest.mark.parametrize("mips", [1000, 500, 250, 125])
def test_powers_of_two_take_no_control_group(mips: int) -> None:
    assert speed.share(mips) is None


@pytest.mark.parametrize("mips", [0, -1, 1001, 2.5])
def test_mips_of_no_machine_are_refused(mips: float, tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(TINY.replace('machine = "virtual"', f'machine = "virtual"\nmips = {mips}'))
    with pytest.raises(LabError, match=r"experiment\.tiny\.mips"):
        matrix.read(file)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Files as the kernel's of control groups, which take whatever is written."""
    monkeypatch.setattr(speed, "_GROUPS", tmp_path)
    return tmp_path


def test_a_slow_guest_is_limited_with_room_for_other_groups(groups: Path) -> None:
    assert speed.limit(7, 500) is None
    assert not list(groups.iterdir())
    slow = speed.limit(7, 300)
    assert slow == groups / "slow"
    assert (slow / "cpu.max").read_text() == "1000 1667"
    assert (slow / "cgroup.subtree_control").read_text() == "+memory"
    assert (slow / "rest" / "cgroup.procs").read_text() == "7"


def test_a_kernel_that_does_not_slow_down_breaks_the_guest(
    groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: "max 100000\n")
    with pytest.raises(MachineError, match="300 MIPS: its kernel says max 100000"):
        speed.limit(7, 300)


def test_real_drives_take_real_time() -> None:
    experiment, _ = chosen()
    real = matrix.on_real_drives(experiment, "directory", {"wal": "/x", "data": "/x"})
    with pytest.raises(LabError, match="real drives take real time"):
        bed.check(real)


def command(*options: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command that users type."""
    return subprocess.run(
        [sys.executable, "-m", "wallab.command.run_matrix", *options],
        cwd=paths.LAB, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mips", "300", "--dry-run"], "--mips: a real machine has its own"),
        (["--machine", "virtual", "--mips", "1001", "--dry-run"], "1001 is not in the range"),
        (["--jobs", "2", "--dry-run"], "--jobs: in real time samples disturb each other"),
        (
            ["--machine", "virtual", "--drive", "directory", "--directory", "/srv", "--dry-run"],
            "real drives take real time",
        ),
    ],
)
def test_what_does_not_go_together_is_bad_usage(options: list[str], words: str) -> None:
    done = command(*options)
    assert done.returncode == 2
    assert words in done.stderr


TINY = """
[experiment.tiny]
title = "a tiny one"
source = "18"
workload = "tpcb-like"
machine = "virtual"
rows = ["variant"]
column = "sync"
axes = { variant = ["stock", "both"], sync = ["open_datasync", "open_datasync_direct"] }
drive.wal = { profile = "ata-2005", size_mb = 512, write_cache = "off" }
drive.data = { profile = "ata-2005", size_mb = 512, write_cache = "on" }
settings = { max_wal_size = "128MB", min_wal_size = "128MB", autovacuum = "off" }

[experiment.tiny.preset.smoke]
about = "as little as there can be"
scale = 1
clients = 4
transactions = 40
warm_up_seconds = 0
rounds = 2
"""


def lacking() -> str:
    """Say why there can be no virtual machine here; nothing if there can."""
    try:
        qemu.find()
        kernel.fetch()
    except MachineError as error:
        return str(error)
    return ""


def test_runs_of_any_number_of_jobs_have_the_same_samples(tmp_path: Path) -> None:
    if reason := lacking():
        pytest.skip(reason)
    (tmp_path / "matrix.toml").write_text(TINY)
    asked: list[str | Path] = ["tiny", "--preset", "smoke", "--matrix", tmp_path / "matrix.toml"]
    first, second = tmp_path / "first", tmp_path / "second"
    whole = command(*asked, "--seed", "3", "--jobs", "1", "--output", first)
    assert whole.returncode == 0, whole.stderr
    begun = command(*asked, "--seed", "3", "--output", second, "--max-time", "1s")
    assert begun.returncode in {0, 1}, begun.stderr
    rest = command("--matrix", tmp_path / "matrix.toml", "--resume", second, "--jobs", "2")
    assert rest.returncode == 0, rest.stderr
    assert (first / SAMPLES).read_bytes() == (second / SAMPLES).read_bytes()
    samples = SampleFile(first / SAMPLES).read()
    # Every server is its own: stock has no such method.
    assert [sample.error for sample in samples] == [""] * 6
    assert {(sample.cell["variant"], *sample.open_flags) for sample in samples} == {
        ("stock", "O_DSYNC"), ("both", "O_DSYNC"), ("both", "O_DIRECT|O_DSYNC"),
    }  # fmt: skip
    # No two rounds have the same chance.
    assert len({sample.figures.tps for sample in samples if sample.figures}) == 6
    for sample in samples:
        assert sample.started.startswith("2005-07-20")
        # In time that the drive shares with those that it serves.
        assert all(drive.lateness["p99_ns"] <= 50_000 for drive in sample.drive.values())
    plan = manifest.load(first)
    assert plan.virtual is not None
    assert plan.virtual == manifest.load(second).virtual
    assert plan.virtual.mips == 1000
    assert plan.machine.cpus == 1
    assert "virtual" in whole.stdout
    assert "Machine: virtual, 1000 million instructions a second" in whole.stdout

    # And once more, by the command for that; a nanosecond that is not so is found.
    def reproduced() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "wallab.command.reproduce", second, "--samples", "2"],
            cwd=paths.LAB, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip

    done = reproduced()
    assert done.returncode == 0, done.stderr + done.stdout
    lines = (second / SAMPLES).read_bytes().splitlines(keepends=True)
    busy = samples[3].drive["wal"].counters["busy_ns"]
    lines[3] = lines[3].replace(b'"busy_ns":%d' % busy, b'"busy_ns":%d' % (busy + 1))
    (second / SAMPLES).write_bytes(b"".join(lines))
    done = reproduced()
    assert done.returncode == 1, done.stderr + done.stdout
    assert f"busy_ns: {busy + 1} in the run, {busy} here" in done.stdout
