"""matrix.toml and series.toml are read strictly."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from wallab import paths
from wallab.errors import LabError
from wallab.record import matrix, series
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
