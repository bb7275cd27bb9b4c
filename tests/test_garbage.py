"""Whatever a file holds, reading it gives an error that says so, or a right answer."""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wallab import paths
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.powercut import conduct, display
from wallab.record import driveprofile, manifest, matrix, ownvariant, reference, series
from wallab.record.build import AppliedPatch, Build
from wallab.record.ownvariant import OwnPatch, OwnVariant
from wallab.record.samples import Sample, SampleFile
from wallab.results import summary, table, tabulation
from wallab.results.export import text
from wallab.servers import checkresult, debian, prebuilt, source
from wallab.servers.checkresult import Check
from wallab.servers.patching import Touched, WorkTree
from wallab.servers.source import Source
from wallab.virtual import template
from wallab.virtual.message import Answer

RUN = paths.LAB / "results" / "example-quick"
EXAMPLE = RUN / "samples.jsonl"
SAMPLE = EXAMPLE.read_text().splitlines()[0]
MANIFEST = (RUN / "manifest.json").read_text()
OVER_TIME = paths.LAB / "results" / "example-file-systems"
CUT = paths.LAB / "results" / "example-power-cuts-others"
CAMPAIGN = (CUT / "campaign.json").read_text()
RECORD = (CUT / "cuts.jsonl").read_text().splitlines()[0]
REFERENCE = (paths.REFERENCE / "thread.toml").read_text()
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

# Every table, page and plot is made of each.
few = settings(modest, max_examples=20)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda value: (
        st.lists(value, max_size=3) | st.dictionaries(st.text(max_size=5), value, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def mangled(draw: st.DrawFn, text: str) -> str:
    """The text with a piece cut out, doubled, or replaced."""
    begin = draw(st.integers(0, len(text)))
    end = min(len(text), begin + draw(st.integers(0, 80)))
    piece = draw(st.one_of(st.just(""), st.just(text[begin:end] * 2), st.text(max_size=10)))
    return text[:begin] + piece + text[end:]


extremes = st.sampled_from([0, -1, 1, 1e308, -1e308, 5e-324, 1e-9, 10**18, 10**400, 0.5, -0.0])


@st.composite
def renumbered(draw: st.DrawFn, data: Any) -> Any:
    """The data with another number where one is in it."""
    if isinstance(data, bool) or not isinstance(data, dict | list | int | float) or not data:
        return data
    if isinstance(data, int | float):
        return draw(extremes)
    numbered = [key for key, value in items(data) if has_numbers(value)]
    if not numbered:
        return data
    chosen = draw(st.sampled_from(numbered))
    changed = {key: draw(renumbered(value)) if key == chosen else value
               for key, value in items(data)}  # fmt: skip
    return changed if isinstance(data, dict) else list(changed.values())


def items(data: dict[str, Any] | list[Any]) -> list[tuple[Any, Any]]:
    """The data's parts, each with its key or its place."""
    return list(data.items() if isinstance(data, dict) else enumerate(data))


def has_numbers(data: Any) -> bool:
    """Whether there is a number in it."""
    if isinstance(data, dict | list):
        return any(has_numbers(value) for _, value in items(data))
    return isinstance(data, int | float) and not isinstance(data, bool)


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
        message = str(error)
    assert f"{file}, line " in message
    return None


@modest
@given(st.binary(max_size=200))
def test_samples_of_any_bytes(tmp_path: Path, content: bytes) -> None:
    samples = read_samples(tmp_path / "samples.jsonl", content)
    assert samples in (None, [])


@modest
@given(replaced(json.loads(SAMPLE)))
def test_samples_with_anything_in_them(tmp_path: Path, data: Any) -> None:
    line = json.dumps(data)
    samples = read_samples(tmp_path / "samples.jsonl", f"{SAMPLE}\n{line}\n{SAMPLE}\n".encode())
    assert samples is None or len(samples) == 3


@modest
@given(st.integers(0, len(SAMPLE.encode())))
def test_samples_cut_anywhere(tmp_path: Path, place: int) -> None:
    file = tmp_path / "samples.jsonl"
    whole = f"{SAMPLE}\n".encode()
    samples = read_samples(file, whole + SAMPLE.encode()[:place])
    # Cut just before its end of line the second sample is whole, but was never acknowledged.
    assert samples is not None
    assert len(samples) == (2 if place == len(SAMPLE.encode()) else 1)
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
        message = str(error)
    assert str(file) in message
    return None


@modest
@given(mangled(MATRIX))
def test_matrix_mangled(tmp_path: Path, content: str) -> None:
    document = read_toml(matrix.read, tmp_path / "matrix.toml", content)
    if document is not None:
        for experiment in document.experiment.values():
            for preset in experiment.preset.values():
                assert all(cell.keys() == experiment.axes.keys()
                           for cell in matrix.cells(experiment, preset))  # fmt: skip


@modest
@given(mangled(SERIES))
def test_series_mangled(tmp_path: Path, content: str) -> None:
    for folder in (path for path in paths.PATCHES.iterdir() if path.is_dir()):
        if not (tmp_path / folder.name).exists():
            (tmp_path / folder.name).symlink_to(folder)
    catalog = read_toml(series.read, tmp_path / "series.toml", content)
    if catalog is not None:
        assert catalog.variant.keys() <= tomllib.loads(content)["variant"].keys()


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
        (
            VARIANT.replace(b"[]", b'["' + b"x" * 300 + b'"]') + b"[series.18]\n",
            f"variant.v.patches: “{'x' * 40}” is no name of a patch",
        ),
        (VARIANT.replace(b"[]", b'["../x"]') + b"[series.18]\n", "“../x” is no name of a patch"),
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
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"\xff": 1}',
        b'{"name": "\xe9"}',
        b"[" * 100_000,
        b"null",
        b'{"version": "../x"}',
    ],
)
def test_damaged_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, damage: bytes
) -> None:
    file, read, content = record(kind, tmp_path, monkeypatch)
    assert refusal(read, file, content) == ""
    assert refusal(read, file, damage)


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"[]", b'{"methods": 3}', b"[" * 100_000])
def test_damaged_template_of_virtual_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    monkeypatch.setenv("WALLAB_CACHE", str(tmp_path))
    recipe = mock.Mock(sha256="0123456789abcdef" * 4)
    assert template.kept(recipe) is None
    file = tmp_path / "virtual" / "template-0123456789abcdef" / "answer.json"
    file.parent.mkdir(parents=True)
    (file.parent / "memory.sha256").write_text("0" * 64)
    assert "is made anew" in refusal(lambda _: template.kept(recipe), file, damage)
    jsonfile.save(file, Answer(methods=("fsync",)))
    reread = template.kept(recipe)
    assert reread is not None
    assert reread.answer.methods == ("fsync",)


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


def tabulated(folder: Path) -> str:
    """Make every table, page and plot of a run; return the error if there is one."""
    try:
        results = tabulation.results_of(folder)
        for kind in tabulation.KINDS:
            content = tabulation.content(results, kind)
            assert content is None or "nan" not in content.split()
    except LabError as error:
        return str(error)
    return ""


def a_run(folder: Path, plan: str, samples: str) -> Path:
    """A run directory with that in it."""
    (folder / "manifest.json").write_text(plan)
    (folder / "samples.jsonl").write_text(samples)
    return folder


FEW = "".join(f"{line}\n" for line in EXAMPLE.read_text().splitlines()[:40])
OVER_TIME_SAMPLE = (OVER_TIME / "samples.jsonl").read_text().splitlines()[0]


@few
@given(mangled(MANIFEST))
def test_manifest_mangled(tmp_path: Path, content: str) -> None:
    error = tabulated(a_run(tmp_path, content, FEW))
    assert not error or str(tmp_path / "manifest.json") in error or "reference" in error


@few
@given(replaced(json.loads(MANIFEST)))
def test_manifest_with_anything_in_it(tmp_path: Path, data: Any) -> None:
    error = tabulated(a_run(tmp_path, json.dumps(data), FEW))
    assert not error or str(tmp_path / "manifest.json") in error or "reference" in error


@few
@given(renumbered(json.loads(MANIFEST)))
def test_manifest_with_any_numbers(tmp_path: Path, data: Any) -> None:
    error = tabulated(a_run(tmp_path, json.dumps(data), FEW))
    assert not error or str(tmp_path / "manifest.json") in error


@few
@given(renumbered(json.loads(SAMPLE)), renumbered(json.loads(SAMPLE)))
def test_tables_of_any_numbers(tmp_path: Path, first: Any, last: Any) -> None:
    error = tabulated(a_run(tmp_path, MANIFEST, f"{json.dumps(first)}\n{FEW}{json.dumps(last)}\n"))
    assert not error or f"{tmp_path / 'samples.jsonl'}, line " in error


@few
@given(renumbered(json.loads(OVER_TIME_SAMPLE)))
def test_curves_of_any_numbers(tmp_path: Path, data: Any) -> None:
    plan = (OVER_TIME / "manifest.json").read_text()
    error = tabulated(a_run(tmp_path, plan, f"{OVER_TIME_SAMPLE}\n{json.dumps(data)}\n"))
    assert not error or f"{tmp_path / 'samples.jsonl'}, line " in error


@few
@given(replaced(json.loads(SAMPLE)))
def test_tables_with_anything_in_a_sample(tmp_path: Path, data: Any) -> None:
    error = tabulated(a_run(tmp_path, MANIFEST, f"{FEW}{json.dumps(data)}\n"))
    assert not error or f"{tmp_path / 'samples.jsonl'}, line " in error


def judged(folder: Path, plan: str, cuts: str) -> str:
    """Make the table of a campaign; return the error if there is one."""
    (folder / "campaign.json").write_text(plan)
    (folder / "cuts.jsonl").write_text(cuts)
    try:
        display.render(conduct.report(folder))
    except LabError as error:
        return str(error)
    return ""


@modest
@given(st.one_of(mangled(CAMPAIGN), replaced(json.loads(CAMPAIGN)).map(json.dumps),
                 renumbered(json.loads(CAMPAIGN)).map(json.dumps)))  # fmt: skip
def test_campaign_with_anything_in_it(tmp_path: Path, content: str) -> None:
    error = judged(tmp_path, content, f"{RECORD}\n")
    assert not error or str(tmp_path / "campaign.json") in error


@modest
@given(st.one_of(replaced(json.loads(RECORD)), renumbered(json.loads(RECORD))).map(json.dumps))
def test_cuts_with_anything_in_them(tmp_path: Path, line: str) -> None:
    error = judged(tmp_path, CAMPAIGN, f"{RECORD}\n{line}\n{RECORD}\n")
    assert not error or f"{tmp_path / 'cuts.jsonl'}, line " in error


@modest
@given(mangled(REFERENCE))
def test_reference_mangled(tmp_path: Path, content: str) -> None:
    plan = manifest.load(RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "reference_file", lambda name: tmp_path / name)
        published = read_toml(
            lambda file: reference.load(file.name, plan.experiment.axes),
            tmp_path / "thread.toml", content,
        )  # fmt: skip
    if published is not None:
        summaries = summary.summarize(plan, [], published)
        text.render(table.lay_out(plan, summaries, published))


# --- what is wrong with a file is said with its place ---------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("cells", 3), {"variant": "both"}, "cells[3]: expected a value each of variant, write_"),
        (("cells", 0, "sync"), "never", "cells[0].sync: expected one of fsync=false, "),
        (("experiment", "axes", "colour"), ["red"], "experiment.axes.colour: unknown axis “colour"),
        (("experiment", "axes", "write_cache"), ["wet"], "axes.write_cache: unknown value “wet”"),
        (("experiment", "values"), ["beauty"], "experiment.values: unknown “beauty”; expected tps"),
        (("experiment", "column"), "colour", "experiment.rows: expected every axis but the colu"),
        (("experiment", "workload"), "idle", "experiment.workload: unknown “idle”; expected tpcb"),
        (("experiment", "reference"), "../x", "experiment.reference: there is no "),
        (("experiment", "reference"), "x" * 300, "experiment.reference: there is no "),
        (("drives", "wal", "units"), "x", "drives.wal.units: expected a number from 1, got “x”"),
        (("machine", "memory_kb"), -1, "Expected `int` >= 0 - at `$.machine.memory_kb`"),
    ],
)
def test_damaged_manifests_say_where(
    tmp_path: Path, path: tuple[Any, ...], value: Any, words: str
) -> None:
    plan = json.loads(MANIFEST)
    place = plan
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    error = tabulated(a_run(tmp_path, json.dumps(plan), FEW))
    assert error.startswith(f"{tmp_path / 'manifest.json'}: ")
    assert words in error


@pytest.mark.parametrize(
    ("tps", "words"),
    [
        ("-1", "Expected `float` >= 0.0 - at `$.figures.tps`"),
        ("1e308", "Expected `float` <= 1000000000000.0 - at `$.figures.tps`"),
        ("1e999", ""),
    ],
)
def test_impossible_rates_are_refused(tmp_path: Path, tps: str, words: str) -> None:
    sample = json.loads(SAMPLE)
    sample["figures"]["tps"] = "TPS"
    line = json.dumps(sample).replace('"TPS"', tps)
    error = tabulated(a_run(tmp_path, MANIFEST, f"{SAMPLE}\n{line}\n{SAMPLE}\n"))
    assert error.startswith(f"{tmp_path / 'samples.jsonl'}, line 2: not a sample: ")
    assert words in error


def test_figures_over_time_of_no_gauge_are_refused(tmp_path: Path) -> None:
    for over_time, words in (
        ({"beauty": {"seconds": [1], "figures": [1]}}, "unknown gauge “beauty”; expected rate"),
        ({"rate": {"seconds": [1, 2], "figures": [1]}}, "as many `figures` as `seconds`"),
        ({"rate": {"seconds": [], "figures": []}}, "and at least one - at `$.series[...]`"),
    ):
        line = json.dumps(json.loads(SAMPLE) | {"series": over_time})
        error = tabulated(a_run(tmp_path, MANIFEST, f"{line}\n{SAMPLE}\n"))
        assert "samples.jsonl, line 1: not a sample: " in error
        assert words in error


def test_campaign_without_a_variants_methods(tmp_path: Path) -> None:
    plan = json.loads(CAMPAIGN)
    del plan["methods"]["baseline"]
    error = judged(tmp_path, json.dumps(plan), f"{RECORD}\n")
    assert error == (
        f"{tmp_path / 'campaign.json'}: methods: expected those of the variant baseline"
    )


def test_reference_for_another_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "odd.toml"
    monkeypatch.setattr(reference, "reference_file", lambda name: file)
    for row, words in (
        (
            'at = { colour = "red" }\nfsync = 1',
            "row 1, at: unknown axis “colour”; expected some of",
        ),
        ("at = {}\nfsync = inf", "row 1, fsync: expected a number"),
        ("at = {}\nfsync = true", "row 1, fsync: expected a number"),
    ):
        file.write_text(f'title = "t"\nunit = "u"\n[[row]]\n{row}\n')
        with pytest.raises(LabError) as error:
            reference.load("odd", ("variant", "sync"))
        assert str(error.value).startswith(f"{file}: {words}")


def test_nested_too_deeply(tmp_path: Path) -> None:
    plan = MANIFEST.replace('"templates": {', f'"templates": {{"x": {{"y": {"[" * 9999}}}', 1)
    assert plan != MANIFEST
    assert "nested too deeply" in tabulated(a_run(tmp_path, plan, FEW))


def test_sample_that_lasted_no_time(tmp_path: Path) -> None:
    sample = json.loads(OVER_TIME_SAMPLE)
    sample["figures"]["lasted_s"] = 0
    sample["cpu_seconds"] = {"server": 1, "client": 1}
    plan = (OVER_TIME / "manifest.json").read_text()
    assert tabulated(a_run(tmp_path, plan, f"{json.dumps(sample)}\n")) == ""


def test_what_is_not_in_utf_8_is_refused(tmp_path: Path) -> None:
    name, damaged = b'"direct-io"', b'"dir\xe9ct-io"'
    line = SAMPLE.encode().replace(name, damaged, 1)
    assert line != SAMPLE.encode()
    assert read_samples(tmp_path / "samples.jsonl", line + b"\n" + line + b"\n") is None
    (tmp_path / "manifest.json").write_bytes(MANIFEST.encode().replace(name, damaged, 1))
    with pytest.raises(LabError, match=r"manifest.json: not in UTF-8: byte 0xe9"):
        manifest.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"# \xe9\n", "byte 2: expected text in UTF-8"),
        (b"rpm = " + b"9" * 5000, "line 1: expected a number of 64 bits"),
        (b"rpm = " + b"[" * 100_000, "nested too deeply"),
        (b"rpm = { a = 1 }", "rpm: expected `int | str | array`, got `object`"),
        (b"rpm = true", "expected `int | str | array`, got `bool`"),
    ],
)
def test_drive_profile_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, expected: str
) -> None:
    monkeypatch.setattr(driveprofile, "_PROFILES", tmp_path)
    assert expected in refusal(lambda _: driveprofile.profile("x"), tmp_path / "x.toml", content)
