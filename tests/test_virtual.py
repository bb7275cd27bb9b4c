"""The virtual machine: what it is asked for, what names it, and a run of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.machine import provision
from wallab.record import manifest, matrix
from wallab.record.experiment import Experiment, Preset
from wallab.record.samples import SAMPLES, SampleFile
from wallab.virtual import bed, emulator, kernel, message, template
from wallab.virtual.emulator import Machine

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
            kernel=home / "vmlinuz", first=home / "first", root=home / "a" / "image",
            server=home / "b" / "image", orders=home / "orders", ram=home / "ram",
            memory_mb=2048, mips=250,
        )  # fmt: skip
        return machine.options()

    assert options(tmp_path / "here") == options(tmp_path / "elsewhere, with a comma")
    assert "shift=2,sleep=off,align=off" in options(tmp_path)
    assert not [word for word in options(tmp_path) if str(tmp_path) in word]


@pytest.mark.parametrize("mips", [1, 300, 999, 2000])
def test_mips_that_are_not_there_yet_are_refused(mips: int) -> None:
    experiment, _ = chosen()
    with pytest.raises(LabError, match=f"mips: {mips}: .* 1000, 500, 250, 125"):
        bed.check(msgspec.structs.replace(experiment, mips=mips))


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


def test_without_an_emulator_the_machine_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(packages: dict[str, str]) -> None:
        raise provision.SetupError(f"as root, run: apt-get install {' '.join(packages)}")

    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(provision, "install", refuse)
    with pytest.raises(MachineError, match="apt-get install qemu-system-x86") as caught:
        emulator.check()
    assert caught.value.exit_code == 3


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
    if not shutil.which(emulator.PROGRAM):
        return f"needs {emulator.PROGRAM}"
    try:
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
        assert sample.drive["data"].lateness["p99_ns"] <= 200_000
    plan = manifest.load(first)
    assert plan.virtual is not None
    assert plan.virtual == manifest.load(second).virtual
    assert plan.virtual.mips == 1000
    assert plan.machine.cpus == 1
    assert "virtual" in whole.stdout
    assert "Machine: virtual, 1000 million instructions a second" in whole.stdout
