"""matrix.toml and series.toml are read strictly."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from wallab import paths
from wallab.errors import LabError
from wallab.record import matrix, series
from wallab.record.driveprofile import PROTECTED
from wallab.results.comparison import VERDICT_ROUNDS
from wallab.servers.patches import patches_of

Edit = Callable[[str, str], Path]


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """Make a matrix.toml with one place changed."""

    def change(old: str, new: str) -> Path:
        text = paths.MATRIX.read_text()
        assert old in text
        file = tmp_path / "matrix.toml"
        file.write_text(text.replace(old, new, 1))
        return file

    return change


def test_the_thread_stands_in_it() -> None:
    experiment, quick = matrix.choose(matrix.read(), "thread", "quick")
    cells = matrix.cells(experiment, quick)
    assert {"variant": "both", "write_cache": "off", "sync": "open_direct"} in cells
    full = matrix.cells(experiment, experiment.preset["full"])
    assert len(full) == 6 * 3 * 9
    preset = experiment.preset["full"]
    assert (preset.scale, preset.clients, preset.transactions, preset.rounds) == (100, 50, 200, 20)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("relative_to", "relativ_to", r"experiment\.thread: .*relativ_to"),
        ('"open_sync"', '"open_synk"', "axes.sync: unknown value “open_synk”; expected one of"),
        ('"on-unflushed"]', '"maybe"]', "axes.write_cache: unknown value “maybe”"),
        ('variant = ["stock"', 'variant = ["stick"', "axes.variant: unknown value “stick”"),
        ('profile = "ata-2005"', 'profile = "ata-1905"', "drive.wal.profile: no drive profile"),
        ("rounds = 20", "rounds = 0", r"experiment\.thread\.preset\.full\.rounds: expected"),
        ("rounds = 20", "rounds = 20\nround = 3", r"experiment\.thread.*preset.*round"),
        (
            'control = { variant = "both", write_cache = "off", sync = "open_direct" }',
            'control = { variant = "both", write_cache = "off", sync = "open_sink" }',
            r"thread\.preset\.full\.control: expected a cell of the preset",
        ),
        ("rounds = 20", 'rounds = "many"', r"experiment\.thread\.preset\.full\.rounds: expected"),
        ("transactions = 200", "transactions = 200\nseconds = 3", "either transactions or seconds"),
        ('column = "sync"', 'column = "sink"', "rows: expected every axis"),
        ('workload = "tpcb-like"', 'workload = "x"', "workload: unknown"),
        ('filesystem = "xfs"', 'filesystem = "ntfs"', "drive.wal.filesystem: expected xfs"),
        (
            'profile = "ata-2005"',
            'profile = "ata-2005"\nelevator = "as"',
            "drive.wal.elevator: expected clook or fifo or anticipatory",
        ),
        (
            'profile = "ata-2005"\nsize_mb = 2048\nfilesystem = "xfs"',
            'kind = "directory"\ndirectory = "/srv"\nelevator = "fifo"',
            "drive.wal.elevator: is for simulated drives",
        ),
        ('reference = "thread"', 'reference = "none"', "reference: there is no"),
        ("size_mb = 2048", "size_mb = 1", r"experiment\.thread\.drive\.wal\.size_mb: expected"),
        ('commit_delay = "500"', '"commit delay" = "500"', "settings: “commit delay”"),
        ('write_cache = "off" },', 'write_cache = "of" },', "only: “of” is not on the axis"),
        (
            'only = [\n  { variant = "direct-io"',
            'control = { variant = "both", write_cache = "off", sync = "fsync" }\n'
            'only = [\n  { wariant = "direct-io"',
            "only: unknown axis “wariant”",
        ),
        ("[experiment.thread]", "[experiment.thread", r"matrix\.toml: "),
    ],
)
def test_wrong_matrix(edit: Edit, old: str, new: str, message: str) -> None:
    file = edit(old, new)
    with pytest.raises(LabError, match=message) as error:
        matrix.read(file)
    assert str(file) in str(error.value)


def test_unknown_experiment_and_preset() -> None:
    with pytest.raises(LabError, match=r"no experiment “x”; there are thread"):
        matrix.choose(matrix.read(), "x", "quick")
    with pytest.raises(LabError, match="no preset “x”; it has full, quick, smoke"):
        matrix.choose(matrix.read(), "thread", "x")


def test_series_names_a_missing_patch(tmp_path: Path) -> None:
    file = tmp_path / "series.toml"
    file.write_text(
        '[variant.v]\ntitle = "v"\nabout = ""\npatches = ["nosuch"]\n[series.18]\ntested = ["18"]\n'
    )
    with pytest.raises(LabError, match=re.escape("variant.v.patches: there is no 18/nosuch.patch")):
        series.read(file)


def test_unknown_variant_names_the_known_ones() -> None:
    with pytest.raises(LabError, match=r"no variant “bath”; there are stock, .*both"):
        patches_of(series.read(), "bath", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("axis", ["rate", "think"])
def test_a_workload_with_a_pace_of_its_own(edit: Edit, axis: str) -> None:
    rows = 'rows = ["variant", "write_cache"]'
    with_axis = f'rows = ["variant", "write_cache", "{axis}"]'
    axes = "[experiment.thread.axes]\n"
    file = edit(rows, with_axis)
    text = re.sub(r"(?m)^control = .*$", "", file.read_text())
    file.write_text(text.replace(axes, f'{axes}{axis} = ["100"]\n', 1))
    assert axis in matrix.find(matrix.read(file), "thread").axes
    file.write_text(file.read_text().replace('workload = "tpcb-like"', 'workload = "tpcc"', 1))
    with pytest.raises(LabError, match=rf"thread\.axes\.{axis}: tpcc has a pace of its own; the"):
        matrix.read(file)


USUAL = """
[experiment.small]
title = "small"
source = "18"
workload = "tpcb-like"
rows = ["clients", "variant", "setting.wal_buffers"]
column = "sync"
[experiment.small.usual]
clients = ["1", "2"]
"setting.wal_buffers" = "4MB"
[experiment.small.axes]
clients = ["1", "2", "3"]
variant = ["stock", "both"]
"setting.wal_buffers" = ["4MB", "1MB"]
sync = ["fsync", "fdatasync"]
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 512
write_cache = "on"
[experiment.small.settings]
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
clients = 1
transactions = 1
rounds = 1
only = [
  { sync = "fsync" },
  { clients = "3", "setting.wal_buffers" = "1MB", sync = "fdatasync", variant = "both" },
]
[experiment.small.preset.full]
about = "for tests"
scale = 1
clients = 1
transactions = 1
rounds = 1
"""


def test_what_a_condition_means_by_not_naming_an_axis(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(USUAL)
    experiment, preset = matrix.choose(matrix.read(file), "small", "smoke")
    assert {tuple(cell.values()) for cell in matrix.cells(experiment, preset)} == {
        *((n, v, "4MB", "fsync") for n in ("1", "2") for v in ("stock", "both")),
        ("3", "both", "1MB", "fdatasync"),
    }
    # Without conditions everything is measured.
    assert len(matrix.cells(experiment, experiment.preset["full"])) == 3 * 2 * 2 * 2
    for wrong, message in (
        ('"setting.wal_buffers" = "4MB"\n[', r"usual: “8MB” is not on the axis setting\.wal_b"),
        ("clients = [", "usual: unknown axis “scale”"),
    ):
        right = wrong.replace("4MB", "8MB").replace("clients", "scale")
        file.write_text(USUAL.replace(wrong, right, 1))
        with pytest.raises(LabError, match=message):
            matrix.read(file)


def test_other_variants_and_drives_have_no_usual_ones(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    usual = 'variant = "stock"\nwrite_cache = "off"\n[experiment.small.axes]\n'
    text = USUAL.replace("[experiment.small.axes]\n", f'{usual}write_cache = ["off", "on"]\n')
    text = text.replace('write_cache = "on"\n', "").replace("rows = [", 'rows = ["write_cache", ')
    file.write_text(text)
    experiment, preset = matrix.choose(matrix.read(file), "small", "smoke")
    assert {cell["write_cache"] for cell in matrix.cells(experiment, preset)} == {"off"}
    assert len(matrix.cells(experiment, preset)) == 3
    others = matrix.with_variants(experiment, ("direct-io", "both"))
    measured = matrix.cells(others, others.preset["smoke"])
    assert {cell["variant"] for cell in measured} == {"direct-io", "both"}
    real = matrix.on_real_drives(experiment, "directory", {"data": "/x"})
    measured = matrix.cells(real, real.preset["smoke"])
    assert {cell["write_cache"] for cell in measured} == {"as-is"}
    assert len(measured) == 3


def test_a_review_is_of_many_drives() -> None:
    experiment, preset = matrix.choose(matrix.read(), "review", "quick")
    measured = matrix.cells(experiment, preset)
    plain = [cell for cell in measured if all(cell[a] == v for a, v in experiment.usual.items())]
    drives = {(cell["profile"], cell["write_cache"]) for cell in plain}
    assert len(drives) == 5
    for drive in drives:
        there = [c for c in plain if (c["profile"], c["write_cache"]) == drive]
        assert {c["clients"] for c in there} == {"1", "16"}
        assert {c["sync"] for c in there} == {"fdatasync", "open_datasync"}
        # Flash with capacitors alone has a cache that needs no flush.
        assert (drive[1] == "battery") == (drive[0] in PROTECTED)
    # Each setting has a cell, beside the same one without it.
    for axis in experiment.usual:
        (other,) = {cell[axis] for cell in measured} - {experiment.usual[axis]}
        changed = [cell for cell in measured if cell[axis] == other]
        assert changed
        assert all(cell | {axis: experiment.usual[axis]} in measured for cell in changed)
    own = matrix.with_variants(experiment, ("stock", "both"))
    assert len(matrix.cells(own, own.preset["quick"])) == len(measured)
    assert experiment.preset["quick"].rounds >= VERDICT_ROUNDS
