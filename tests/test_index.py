"""All runs on one page: what it says of each, and that no damage ends it and names stay text."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from browser import Browser, lacking
from click.testing import CliRunner

from wallab import paths
from wallab.command import tabulate
from wallab.results import entry, index, tabulation
from wallab.results.index import PAGE

EVIL = "\"'><img src=x onerror='owned=1'><script>owned=2<"
chromium = pytest.mark.skipif(bool(lacking()), reason=lacking())


def copied(runs: Path, example: str, name: str, *files: str) -> Path:
    """A run among the runs, with these files besides the two that every one has."""
    folder = runs / name
    folder.mkdir(parents=True)
    for file in ("manifest.json", "samples.jsonl", *files):
        shutil.copy(paths.RESULTS / example / file, folder)
    return folder


def edited(folder: Path, **fields: object) -> None:
    """Change fields of the run's manifest."""
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs, three that are damaged, and folders that are none."""
    runs = tmp_path / "results"
    copied(runs, "example-wal-buffers", "b", "table.txt")
    copied(runs, "example-quick", "a", "report.html", "table.txt")
    copied(runs, "example-read-ahead", EVIL)
    edited(runs / EVIL, name=EVIL)
    (copied(runs, "example-quick", "torn") / "manifest.json").write_text('{"name": "thr')
    (copied(runs, "example-quick", "headless") / "manifest.json").unlink()
    broken = copied(runs, "example-quick", "broken") / "samples.jsonl"
    broken.write_text("{}\n" + broken.read_text())
    (runs / "reference").mkdir()
    (runs / "campaign").mkdir()
    (runs / "campaign" / "campaign.json").write_text("{}")
    return runs


def listed(*arguments: str | Path) -> tuple[int, str, str]:
    """Run the command in this process; exit code, output, messages."""
    result = CliRunner().invoke(tabulate.command, list(map(str, arguments)), standalone_mode=False)
    code = 2 if result.exception else result.return_value
    return code, result.stdout, result.stderr + str(result.exception or "")


def test_the_latest_run_comes_first_with_what_came_of_it(runs: Path) -> None:
    entries, damaged = index.of(runs)
    assert [entry.name for entry in entries] == [EVIL, "b", "a"]
    assert [entry.started for entry in entries] == sorted(
        (e.started for e in entries), reverse=True
    )
    scans, buffers, quick = entries
    assert (buffers.experiment, buffers.preset, buffers.machine) == ("wal-buffers", "quick", "real")
    assert buffers.variants == ("stock", "gather-write")
    assert (buffers.cells, buffers.samples) == (12, 60)
    assert buffers.headline == ("TPS 471.4 to 1137.3; 2 faster and 0 slower of 6 cells of variants")
    assert quick.headline.endswith("too few rounds for verdicts on variants")
    assert quick.variants == ("direct io", "gather-write", "both")
    assert scans.headline.startswith("scan, ms 2")
    content = (runs / "b" / "samples.jsonl").read_bytes()
    assert buffers.digest == hashlib.sha256(content).hexdigest()
    assert [entry.link for entry in entries] == ["", "./b/table.txt", "./a/report.html"]
    assert [entry.name for entry in damaged] == ["broken", "headless", "torn"]


def test_runs_that_have_nothing_yet_or_were_killed(runs: Path) -> None:
    (runs / "a" / "samples.jsonl").unlink()
    edited(runs / "b", sessions=[{"started": "2026-01-01T00:00:00Z", "seconds": 1.0}])
    by_name = {entry.name: entry for entry in index.of(runs)[0]}
    assert by_name["a"].headline == "nothing measured"
    assert (by_name["a"].digest, by_name["a"].samples) == ("", 0)
    assert by_name["b"].ended == "not ended"


def test_command(runs: Path) -> None:
    code, output, messages = listed("--index", runs)
    assert (code, output) == (0, f"{runs / PAGE}\n")
    assert re.findall(r"^left out: (\w+): ", messages, re.MULTILINE) == [
        "broken", "headless", "torn",
    ]  # fmt: skip
    page = (runs / PAGE).read_text()
    for name in ("broken", "headless", "torn"):
        assert f"<strong>{name}</strong>: " in page
    assert page.count('<a href="./') == 2
    # It is made again as it was, and is no run.
    assert listed("--index", runs)[0] == 0
    assert (runs / PAGE).read_text() == page


def test_one_file_without_network(runs: Path) -> None:
    listed("--index", runs)
    page = (runs / PAGE).read_text()
    assert "default-src 'none'" in page
    assert re.findall(r"https?://", page) == []
    assert re.findall(r"\bsrc=\"", page) == []
    assert set(re.findall(r"\bhref=\"(?!#|data:,)([^\"]*)", page)) == {
        "./a/report.html", "./b/table.txt",
    }  # fmt: skip
    assert "<img" not in page
    assert "<script>owned" not in page


def test_links_are_paths(tmp_path: Path) -> None:
    for name in ("javascript:alert(1)", "a b", "ä?#"):
        copied(tmp_path, "example-quick", name, "table.txt")
    links = {entry.name: entry.link for entry in index.of(tmp_path)[0]}
    assert links["javascript:alert(1)"] == "./javascript%3Aalert%281%29/table.txt"
    assert links["a b"] == "./a%20b/table.txt"
    assert links["ä?#"] == "./%C3%A4%3F%23/table.txt"


def test_a_page_of_somebody_else_stays(runs: Path) -> None:
    (runs / PAGE).write_text("<p>mine</p>")
    code, output, messages = listed("--index", runs)
    assert (code, output) == (2, "")
    assert "is not of the lab; move it away" in messages
    assert (runs / PAGE).read_text() == "<p>mine</p>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a RUN, such as latest; or list all: --index results"),
        (["--index", "/nonexistent"], "expected the folder that the runs are in"),
        (["latest", "--index", "."], "nothing else fits"),
        (["--index", ".", "--format", "csv"], "nothing else fits"),
        (["--index", ".", "--fail-if-slower", "0"], "nothing else fits"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str) -> None:
    code, output, messages = listed(*arguments)
    assert (code, output) == (2, "")
    assert message in messages


def test_headline_of_latencies() -> None:
    """Of a run whose first value is another than TPS."""
    results = tabulation.results_of(paths.RESULTS / "example-archive")
    assert entry.headline(results.table).startswith("New-Orders a minute, real ")
    nothing = msgspec.structs.replace(results.table, rows=())
    assert entry.headline(nothing) == "nothing measured"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.quit()


@chromium
def test_sorts_and_leads_to_reports(browser: Browser, runs: Path) -> None:
    index.write(runs)
    browser.open(runs / PAGE)
    assert browser.console() == []
    assert browser.run("return typeof owned") == "undefined"
    assert browser.run("return document.images.length") == 0
    names = "#sortable tbody td:nth-child(2)"
    before = browser.shown(names)
    assert before == [EVIL, "b", "a"]
    button = browser.find("#sortable thead th:nth-child(9) button")
    button.click()
    samples = [int(words) for words in browser.shown("#sortable tbody td:nth-child(9)")]
    assert samples == sorted(samples, reverse=True)
    button.click()
    button.click()
    assert browser.shown(names) == before
    browser.find("#sortable tbody a[href*=report]").click()
    browser.wait_until("document.querySelector('#tps')")
    assert browser.console() == []
