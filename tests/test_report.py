"""report.html and the plots: what they say, and that they work in a browser."""

import base64
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from browser import Browser, lacking
from selenium.webdriver.common.keys import Keys

from wallab import paths
from wallab.record import matrix, reference
from wallab.results import summary, table, tabulation
from wallab.results.export import plots, svg
from wallab.results.tabulation import Results

EXAMPLE = paths.RESULTS / "example-quick"
EVIL = "\"'><img src=x onerror='owned=1'></script><script>owned=2</script>{{ 7*7 }}&amp;"

chromium = pytest.mark.skipif(bool(lacking()), reason=lacking())


@pytest.fixture(scope="module")
def example() -> Results:
    """The example run."""
    return tabulation.results_of(EXAMPLE)


@pytest.fixture(scope="module")
def page(example: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its report, in a folder of its own."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(tabulation.render(example, "html"))
    return file


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run in which names and messages try to be more than text."""
    folder = tmp_path_factory.mktemp("evil")
    for name in ("manifest.json", "samples.jsonl"):
        content = (EXAMPLE / name).read_text().replace('"direct-io"', json.dumps(EVIL))
        (folder / name).write_text(content)
    plan = json.loads((folder / "manifest.json").read_text())
    plan["experiment"]["title"] = EVIL
    plan["machine"]["cpu"] = EVIL
    plan["experiment"]["settings"][EVIL] = EVIL
    (folder / "manifest.json").write_text(json.dumps(plan))
    lines = (folder / "samples.jsonl").read_text().splitlines()
    failed = json.loads(lines[0]) | {"state": "failed", "error": EVIL, "figures": None}
    (folder / "samples.jsonl").write_text("\n".join([json.dumps(failed), *lines[1:]]) + "\n")
    tabulation.write_files(folder)
    return folder / "report.html"


def test_one_file_without_network(page: Path) -> None:
    content = page.read_text()
    assert "default-src 'none'" in content
    assert re.findall(r"https?://", content) == []
    assert re.findall(r"\b(?:src|href)=\"(?!#|data:,)", content) == []
    assert len(content) < 600_000


def test_same_bytes_in_another_process(example: Results) -> None:
    script = (
        "import pathlib, sys; from wallab.results import tabulation;"
        "found = tabulation.results_of(pathlib.Path(sys.argv[1]));"
        "print(*(tabulation.render(found, kind) for kind in tabulation.PAGES), sep='', end='')"
    )
    other = subprocess.run(
        [sys.executable, "-c", script, EXAMPLE],
        capture_output=True,
        timeout=300,
        check=True,
        cwd=paths.LAB,
        env=os.environ | {"PYTHONHASHSEED": "7", "TZ": "Pacific/Auckland", "LC_ALL": "C.UTF-8"},
    )
    here = "".join(tabulation.render(example, kind) for kind in tabulation.PAGES)
    assert other.stdout.decode() == here


@pytest.mark.parametrize("kind", ["svg", "svg-heads", "svg-drift"])
def test_plots_are_drawings(example: Results, evil: Path, kind: str) -> None:
    drawing = ElementTree.fromstring(tabulation.render(example, kind))  # noqa: S314
    assert drawing.get("aria-label")
    hostile = evil.with_name(tabulation.FILES[kind]).read_text()
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(hostile).iter()}  # noqa: S314
    assert names <= {"svg", "style", "g", "rect", "line", "polyline", "circle", "text", "title"}


def test_bars_are_as_long_as_the_figures(example: Results) -> None:
    drawing = ElementTree.fromstring(plots.bars(example.table).file())  # noqa: S314
    bars = [
        float(element.get("width", "nan"))
        for element in drawing.iter("{http://www.w3.org/2000/svg}rect")
        if element.get("class") == "accent"
    ]
    means = [c.tps.mean for row in example.table.rows for c in row.cells if c and c.tps]
    assert len(bars) == len(means)
    for bar, mean in zip(bars, means, strict=True):
        assert bar / bars[0] == pytest.approx(mean / means[0], abs=0.001)


def test_logarithmic_bars(example: Results) -> None:
    drawing = ElementTree.fromstring(plots.bars(example.table, logarithmic=True).file())  # noqa: S314
    bars = [
        float(bar.get("width", "nan"))
        for bar in drawing.iter("{http://www.w3.org/2000/svg}rect")
        if bar.get("class") == "accent"
    ]
    logs = [math.log(c.tps.mean) for row in example.table.rows for c in row.cells if c and c.tps]
    # Equal ratios are equal distances.
    for bar, log in zip(bars, logs, strict=True):
        assert bar - bars[0] == pytest.approx((bars[1] - bars[0]) / (logs[1] - logs[0])
                                              * (log - logs[0]), abs=0.1)  # fmt: skip


def test_labels_are_escaped() -> None:
    drawing = svg.Drawing(10, 10, EVIL)
    drawing.text(0, 0, EVIL)
    drawing.dot(0, 0, "ink", EVIL)
    read = ElementTree.fromstring(drawing.file())  # noqa: S314
    assert read.get("aria-label") == EVIL
    assert [element.text for element in read if element.text][1:] == [EVIL]


@chromium
def test_renders_without_a_complaint(browser: Browser, page: Path, example: Results) -> None:
    browser.open(page)
    assert browser.console() == []
    assert browser.shown("h1") == [example.table.title]
    measured = sum(1 for row in example.table.rows for cell in row.cells if cell and cell.tps)
    assert len(browser.shown("#linear [data-cell]")) == measured
    assert len(browser.shown("#heads [data-cell]")) == measured
    assert browser.shown("#logarithmic") == []
    browser.find("#log").click()
    assert len(browser.shown("#logarithmic [data-cell]")) == measured
    assert browser.shown("#linear") == []
    assert len(browser.shown("#sortable tbody tr")) == len(example.plan.cells)
    assert len(browser.shown("#why > details")) == measured
    row = browser.run(
        "return [...document.querySelector('.matrix tbody tr').cells].map((c) => c.innerText)"
    )
    assert row[0] == "direct io"
    assert row[4].split("\n")[0] == "26.9"
    assert "48.3" in row[4]


@chromium
def test_sorts(browser: Browser, page: Path) -> None:
    browser.open(page)
    before = browser.shown("#sortable tbody tr")
    titles = browser.shown("#sortable thead th")
    column = titles.index("TPS")
    head = f"#sortable thead th:nth-child({column + 1})"

    def figures() -> list[float]:
        cells = browser.shown(f"#sortable tbody td:nth-child({column + 1})")
        return [float(cell.rstrip("!")) for cell in cells if cell != "(N/A)"]

    button = browser.find(f"{head} button")
    button.click()
    assert browser.find(head).get_attribute("aria-sort") == "descending"
    assert figures() == sorted(figures(), reverse=True)
    assert "(N/A)" in browser.shown("#sortable tbody tr")[-1]
    button.send_keys(Keys.ENTER)
    assert browser.find(head).get_attribute("aria-sort") == "ascending"
    assert figures() == sorted(figures())
    assert "(N/A)" in browser.shown("#sortable tbody tr")[-1]
    button.send_keys(Keys.SPACE)
    assert browser.shown("#sortable tbody tr") == before
    browser.find("#sortable thead th:nth-child(1) button").click()
    names = browser.shown("#sortable tbody td:nth-child(1)")
    assert names == sorted(names)
    assert browser.console() == []


@chromium
def test_selects(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.find("#select > summary").click()
    every = len(browser.shown("#sortable tbody tr"))
    for value in ("on", "fsync=false"):
        browser.find(f'#filters input[value="{value}"]').click()
    left = browser.shown("#sortable tbody tr")
    assert 0 < len(left) < every
    assert browser.shown("#shown") == [f"({len(left)} of {every} cells)"]
    assert browser.shown("#linear [data-row]:not(.off) > text:first-child") == [
        "direct io, off", "direct io, on-unflushed", "gather-write, off", "both, off",
    ]  # fmt: skip
    left_over = browser.shown("#heads [data-cell]:not(.off), #why > details")
    assert left_over
    assert not any("fsync=false" in words for words in left_over)
    assert any("fsync=false" in words for words in browser.shown("#heads [data-cell].off"))
    assert "fsync=false" not in browser.shown("#tps .matrix thead th")
    assert len(browser.shown("#tps .matrix:first-of-type tbody tr")) == 2 * 4
    browser.find('#filters button[type="reset"]').click()
    browser.wait_until("!document.getElementById('shown').textContent")
    assert len(browser.shown("#sortable tbody tr")) == every
    assert len(browser.shown("#tps .matrix tbody tr")) == 2 * 5
    assert browser.console() == []


@chromium
def test_a_figure_leads_to_its_reason(browser: Browser, page: Path) -> None:
    browser.open(page)
    link = browser.find("#tps .matrix tbody tr:nth-child(1) td:nth-of-type(3) a")
    link.send_keys(Keys.ENTER)
    browser.wait_until("document.querySelector('details.card:target')?.open")
    assert browser.run("return location.hash") == "#c2"
    assert "page by page" in browser.shown("#c2 .reasons")[0]
    browser.open(page, "#c3")
    browser.wait_until("document.querySelector('#c3').open")


@chromium
def test_keyboard_and_screen_reader(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.find("body").send_keys(Keys.TAB)
    assert browser.focused().text == "To the table"
    nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
    speaking = ("button", "link", "checkbox", "image", "img", "region", "heading", "table")
    unnamed = [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node["role"]["value"] in speaking
        and node["role"]["value"] != "table"
        and not node.get("name", {}).get("value", "").strip()
    ]
    assert unnamed == []
    roles = [node["role"]["value"] for node in nodes if not node.get("ignored")]
    assert {"main", "navigation", "button", "checkbox", "columnheader", "rowheader"} <= set(roles)
    order = browser.run(
        "return [...document.querySelectorAll('h1,h2,h3')].map((one) => Number(one.tagName[1]))"
    )
    assert order[0] == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(order))


@chromium
def test_names_stay_text(browser: Browser, evil: Path) -> None:
    browser.open(evil)
    assert browser.console() == []
    assert browser.shown("h1") == [EVIL]
    assert browser.run("return typeof owned") == "undefined"
    assert browser.run("return document.images.length") == 0
    assert browser.run("return document.scripts.length") == 2
    assert browser.run("return document.title") == EVIL
    browser.find("#select > summary").click()
    values = browser.run(
        "return [...document.querySelectorAll('#filters input')].map((one) => one.value)"
    )
    assert EVIL in values
    every = len(browser.shown("#sortable tbody tr"))
    boxes = "return [...document.querySelectorAll('#filters input')][arguments[0]].click()"
    browser.run(boxes, values.index(EVIL))
    assert 0 < len(browser.shown("#sortable tbody tr")) < every
    browser.run(boxes, values.index(EVIL))
    browser.find("#open-all").click()
    assert f"failed: {EVIL}" in browser.shown(".error")
    assert browser.run("return typeof owned") == "undefined"


@chromium
@pytest.mark.parametrize("width", [320, 390, 768])
def test_fits_a_phone(browser: Browser, page: Path, width: int) -> None:
    browser.open(page)
    browser.size(width, 800)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    wide = browser.run(
        "return [document.documentElement.scrollWidth, innerWidth,"
        " [...document.querySelectorAll('main *')].filter((one) => !one.closest('.wide, .sr')"
        " && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.className)]"
    )
    assert wide[0] <= wide[1] == width
    assert wide[2] == []


def contrast(ink: list[float], ground: list[float]) -> float:
    """The contrast of two sRGB colours (0 to 255), as WCAG defines it."""

    def luminance(colour: list[float]) -> float:
        parts = [value / 255 for value in colour[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@chromium
def test_dark_and_light(browser: Browser, page: Path) -> None:
    browser.open(page)
    script = """
        const probe = document.body.appendChild(document.createElement("i"));
        return arguments[0].map((name) => {
            probe.style.color = `var(--${name})`;
            return getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number);
        });"""
    names = ["ground", "card", "ink", "muted", "accent", "mark", "warn", "warn-ink"]
    grounds = {}
    for scheme in ("light", "dark"):
        browser.media(scheme)
        colours = dict(zip(names, browser.run(script, names), strict=True))
        grounds[scheme] = sum(colours["ground"][:3])
        for ink in ("ink", "muted", "accent", "mark"):
            for ground in ("ground", "card"):
                assert contrast(colours[ink], colours[ground]) >= 4.5, (scheme, ink, ground)
        assert contrast(colours["warn-ink"], colours["warn"]) >= 4.5
        body = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert [float(part) for part in re.findall(r"[\d.]+", body)] == colours["ground"]
    assert grounds["dark"] < 150
    assert grounds["light"] > 600


@chromium
def test_prints(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.media(kind="print")
    assert browser.shown("nav, #select, #open-all") == []
    browser.media()
    printed = base64.b64decode(browser.command("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000


@chromium
def test_screenshot(tmp_path: Path) -> None:
    picture = tmp_path / "report.png"
    arguments = ["screenshot", "results/example-quick", str(picture), "--width", "900"]
    command = [str(paths.LAB / "scripts" / arguments[0]), *arguments[1:], "--height", "700"]
    result = subprocess.run(command, cwd=paths.LAB, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert (int.from_bytes(content[16:20]), int.from_bytes(content[20:24])) == (900, 700)
    assert len(content) > 20_000


def test_old_samples_without_the_new_fields(example: Results) -> None:
    assert all(s.figures is None or s.figures.course is None for s in example.samples)
    assert "TPS of each second" not in tabulation.render(example, "html")


def test_other_experiments_show_their_own_figures(example: Results) -> None:
    """A scan's time instead of TPS, no WAL drive, and a control, which is in no figure."""
    experiment, preset = matrix.choose(matrix.read(), "read-ahead", "smoke")
    cells = matrix.cells(experiment, preset)
    plan = msgspec.structs.replace(
        example.plan, experiment=experiment, preset=preset, cells=tuple(cells)
    )
    samples = [
        msgspec.structs.replace(
            example.samples[0], cell=cell, round=number, position=position, drive={}, wal=None,
            open_flags={}, values={"scan_ms": 1000.0 + 100 * position + number, "scan_mb_s": 31.5},
            control=control,
        )
        for number in (1, 2, 3)
        for position, cell in enumerate(cells, 1)
        for control in (False, True)
    ]  # fmt: skip
    published = reference.load("read-ahead")
    laid_out = table.lay_out(plan, summary.summarize(plan, samples, published), published)
    results = Results(plan, samples, laid_out)
    report = tabulation.render(results, "html")
    for expected in (
        "scan, ms with intervals",
        '<h2 id="tps-title">scan, ms</h2>',
        ">1102!<",
        "scan, MB/s",
        ">31.5",
        "kB a drive read",
    ):
        assert expected in report
    assert report.count("round 2: ") == len(cells)
    assert "scan, ms, 95% interval" in tabulation.render(results, "svg")
    assert tabulation.render(results, "svg-heads").count("<text") < 20


def test_course_of_a_sample_is_drawn(example: Results, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "manifest.json", tmp_path)
    lines = (EXAMPLE / "samples.jsonl").read_text().splitlines()
    course = {
        "latency_ms": {"p50": 41.5, "p90": 52.25, "p95": 61.0, "p99": 77.0, "max": 99.0},
        "per_second": [120, 118, 131],
        "halves_tps": [119.0, 124.5],
    }
    content = []
    for line in lines:
        sample = json.loads(line)
        sample["figures"]["course"] = course
        sample["cpu_seconds"] = {"server": 2.25, "client": 0.5}
        content.append(json.dumps(sample))
    (tmp_path / "samples.jsonl").write_text("\n".join(content) + "\n")
    report = tabulation.render(tabulation.results_of(tmp_path), "html")
    measured = sum(1 for row in example.table.rows for cell in row.cells if cell and cell.tps)
    assert report.count("from 118 to 131") == measured
    assert "second 3: 131 TPS" in report
    for figure in ("52.2", "119 → 124", "77.0"):
        assert figure in report
