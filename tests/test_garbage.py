"""Whatever a file holds, reading it gives an error that says so, or a right answer."""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wallab import paths
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.record import matrix, ownvariant, series
from wallab.record.build import AppliedPatch, Build
from wallab.record.ownvariant import OwnPatch, OwnVariant
from wallab.record.samples import Sample, SampleFile
from wallab.servers import checkresult, debian, prebuilt, source
from wallab.servers.checkresult import Check
from wallab.servers.patching import Touched, WorkTree
from wallab.servers.source import Source

EXAMPLE = paths.LAB / "results" / "example-quick" / "samples.jsonl"
SAMPLE = EXAMPLE.read_text().splitlines()[0]
MATRIX = paths.MATRIX.read_text()
SERIES = (paths.LAB / "patches" / "series.toml").read_text()

# The same examples every time; a slow machine is no failure. A file is overwritten by each.
modest = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3),
    max_leaves=5,
)


@st.composite
def mangled(draw: st.DrawFn, text: str) -> str:
    """The text with a piece cut out, doubled, or replaced."""
    begin = draw(st.integers(0, len(text)))
    end = min(len(text), begin + draw(st.integers(0, 80)))
    piece = draw(st.one_of(st.just(""), st.just(text[begin:end] * 2), st.text(max_size=10)))
    return text[:begin] + piece + text[end:]


@st.composite
def replaced(draw: st.DrawFn, data: Any) -> Any:
    """The data with something else somewhere in it."""
    if isinstance(data, dict) and data and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(data)))
        return data | {key: draw(replaced(data[key]))}
    return draw(values)


def read_samples(file: Path, content: bytes) -> list[Sample] | None:
    """Read the samples; None where an error names the file and the line."""
    file.write_bytes(content)
    try:
        return SampleFile(file).read()
    except LabError as error:
        said = str(error)
    assert f"{file}, line " in said
    return None


@modest
@given(st.binary(max_size=200))
def test_samples_of_any_bytes(tmp_path: Path, content: bytes) -> None:
    found = read_samples(tmp_path / "samples.jsonl", content)
    assert found in (None, [])


@modest
@given(replaced(json.loads(SAMPLE)))
def test_samples_with_anything_in_them(tmp_path: Path, data: Any) -> None:
    line = json.dumps(data)
    found = read_samples(tmp_path / "samples.jsonl", f"{SAMPLE}\n{line}\n{SAMPLE}\n".encode())
    assert found is None or len(found) == 3


@modest
@given(st.integers(0, len(SAMPLE.encode())))
def test_samples_cut_anywhere(tmp_path: Path, place: int) -> None:
    file = tmp_path / "samples.jsonl"
    whole = f"{SAMPLE}\n".encode()
    found = read_samples(file, whole + SAMPLE.encode()[:place])
    # Cut just before its end of line the second sample is whole, but was never acknowledged.
    assert found is not None
    assert len(found) == (2 if place == len(SAMPLE.encode()) else 1)
    assert SampleFile(file).set_aside_damaged_end() == (place > 0)
    assert file.read_bytes() == whole


def refusal(read: Any, file: Path, content: bytes) -> str:
    """What the error says that reading the file gives, which names it; nothing if it is read."""
    file.write_bytes(content)
    try:
        read(file)
        return ""
    except LabError as error:
        refused = str(error)
    assert str(file) in refused
    return refused


def read_toml(read: Any, file: Path, content: str) -> Any:
    """Read the file; None where an error names it."""
    file.write_text(content, newline="")
    try:
        return read(file)
    except LabError as error:
        said = str(error)
    assert str(file) in said
    return None


@modest
@given(mangled(MATRIX))
def test_matrix_mangled(tmp_path: Path, content: str) -> None:
    found = read_toml(matrix.read, tmp_path / "matrix.toml", content)
    if found is not None:
        for experiment in found.experiment.values():
            for preset in experiment.preset.values():
                assert all(cell.keys() == experiment.axes.keys()
                           for cell in matrix.cells(experiment, preset))  # fmt: skip


@modest
@given(mangled(SERIES))
def test_series_mangled(tmp_path: Path, content: str) -> None:
    for folder in (one for one in paths.PATCHES.iterdir() if one.is_dir()):
        if not (tmp_path / folder.name).exists():
            (tmp_path / folder.name).symlink_to(folder)
    found = read_toml(series.read, tmp_path / "series.toml", content)
    if found is not None:
        assert found.variant.keys() <= tomllib.loads(content)["variant"].keys()


@modest
@given(st.text(max_size=200))
@pytest.mark.parametrize("read", [matrix.read, series.read])
def test_toml_of_any_text(tmp_path: Path, read: Any, content: str) -> None:
    read_toml(read, tmp_path / "any.toml", content)


@pytest.mark.parametrize("read", [matrix.read, series.read, source.releases])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a = 1\nb = " + b"9" * 5000, "line 2: expected a number of 64 bits"),
        (b"[a]\nb = [0, -9223372036854775809]", "a.b.1: expected a number of 64 bits"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"[" + b".".join([b"a"] * 3000) + b"]\nb = 1", "nested too deeply"),
        (b'a = 1\nb = "\xff"', "byte 11: expected text in UTF-8"),
    ],
)
def test_toml_that_breaks_its_reader(
    tmp_path: Path, read: Any, content: bytes, expected: str
) -> None:
    assert expected in refusal(read, tmp_path / "x.toml", content)


VARIANT = b'[variant.v]\ntitle = "v"\nabout = ""\npatches = []\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (VARIANT + b"[series.master]\ntested = []\n", "series.master: expected a major version"),
        (VARIANT + "[series.“18”]\n".encode(), "x.toml: "),
        (VARIANT + "[series.'\u0661']\n".encode(), "expected a major version"),
        (VARIANT + b"[series]\n", "series: expected a table series.NAME"),
        (b"[variant]\n[series.18]\n", "variant: expected a table variant.NAME"),
        (VARIANT, "missing required field `series`"),
        (b"[series.18]\n", "missing required field `variant`"),
    ],
)
def test_series_that_nothing_can_be_chosen_from(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    assert expected in refusal(series.read, tmp_path / "x.toml", content)


RECORDS: dict[str, tuple[Any, Any]] = {
    "source": (
        Source("tarball", Path("x.tar"), "18.6", hashlib.sha256(b"").hexdigest(), official=True),
        lambda _: source.resolve("18").label,
    ),
    "own variant": (
        OwnVariant("x", "stock", (OwnPatch("p", "1", "0", "s", "a", Path("p")),), "2026"),
        lambda _: ownvariant.find("x"),
    ),
    "touched": (Touched(["a"], ["b"]), lambda file: WorkTree(file.with_name("tree")).restore()),
    "check": (
        Check("x", "18.6", "meson", (AppliedPatch("p", "0"),), "k", "2026", 1.0, 2, (), ()),
        lambda _: checkresult.load_all(),
    ),
    "build": (
        Build("x", "18.6", "0", "tarball", (), "meson", (), "cc", {}, "k", 1.0, "2026"),
        lambda _: prebuilt.origin("18"),
    ),
}
PLACES = {
    "source": "sources/18.json",
    "own variant": "variants/x/variant.json",
    "touched": "tree.touched.json",
    "check": "checks/18.6/x/result.json",
    "build": "18.6/x/build.json",
}


def record(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Any, bytes]:
    """The place of such a record, how it is read, and what is right in it."""
    file = folder / PLACES[kind]
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "x.tar").touch()

    def fetch(*_: object) -> Path:
        raise LabError(f"{file}: its tarball is fetched anew")

    monkeypatch.setattr(paths, "BUILD", folder)
    monkeypatch.setattr(debian, "fetch", fetch)
    monkeypatch.setenv("WALLAB_CACHE", str(folder))
    (folder / "tree").mkdir(exist_ok=True)
    value, read = RECORDS[kind]
    return file, read, jsonfile.dumps(value)


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize(
    "damage", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'{"version": "../x"}']
)
def test_damaged_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, damage: bytes
) -> None:
    file, read, content = record(kind, tmp_path, monkeypatch)
    assert refusal(read, file, content) == ""
    assert refusal(read, file, damage)


@modest
@given(data=st.data())
@pytest.mark.parametrize("kind", RECORDS)
def test_record_with_anything_in_it(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        file, read, content = record(kind, tmp_path_factory.mktemp("x"), monkeypatch)
        changed = data.draw(replaced(json.loads(content)))
        refusal(read, file, json.dumps(changed).encode())
