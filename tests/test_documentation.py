"""README, docs/ and CONTRIBUTING: their figures, command lines and links."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from commandlines import CommandLine, WrongLine, check, lines_of, module_of

from wallab import paths
from wallab.command import figures
from wallab.errors import LabError

README = paths.LAB / "README.md"
PAGES = sorted((paths.LAB / "docs").glob("*.md"))
TAUGHT = [README, paths.LAB / "CONTRIBUTING.md", *PAGES]
LINKED = [
    *TAUGHT,
    *(paths.LAB / name for name in ("CHANGELOG.md", "direct_cp/README.md")),
    *sorted((paths.LAB / "drive").glob("*.md")),
]
LINES = [line for document in TAUGHT for line in lines_of(document)]


def name_of(document: Path) -> str:
    return str(document.relative_to(paths.LAB))


def test_readme_is_a_page() -> None:
    assert len(README.read_text().splitlines()) <= 150


def test_index_names_every_page() -> None:
    index = (paths.LAB / "docs" / "README.md").read_text()
    missing = [page.name for page in PAGES if f"]({page.name})" not in index]
    assert missing == ["README.md"]


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as a forge makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def broken(document: Path) -> list[str]:
    """Return the links of a document that lead nowhere in the checkout."""
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    wrong = []
    for link in links:
        if re.match(r"https?:", link):
            continue
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("document", LINKED, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    assert broken(document) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One thing\n[a](nosuch.md) [b](#one-thing) [c](#nosuch) [d](page.md#nosuch)\n"
    )
    assert broken(page) == ["nosuch.md", "#nosuch", "page.md#nosuch"]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_command_line_is_right(line: CommandLine) -> None:
    check(line.text)


def test_command_lines_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Say `scripts/tabulate\nRUN --format svg` or `scripts/test`.\n\n```sh\n"
        "scripts/drive profiles  # all\n\nuv pip \\\n  list\n```\n"
    )
    assert [(line.line, line.text) for line in lines_of(page)] == [
        (4, "scripts/drive profiles  # all"),
        (4, "uv pip    list"),
        (1, "scripts/tabulate RUN --format svg"),
    ]


def test_every_script_is_shown() -> None:
    readme = README.read_text()
    for script in (paths.LAB / "scripts").iterdir():
        assert f"`scripts/{script.name}`" in readme


@pytest.mark.parametrize(
    "line",
    [
        "scripts/run-matrix --nosuch",
        "scripts/run-matrix nosuch",
        "scripts/run-matrix --preset nosuch",
        "scripts/run-matrix --max-time soon",
        "scripts/run-matrix --variants stock,nosuch",
        "scripts/power-cut --cells sync=nosuch",
        "scripts/power-cut --fault nosuch",
        "scripts/reproduce",
        "scripts/worker",
        "scripts/scheduler --nosuch",
        "scripts/run-matrix --scheduler tcp://HOST:8786",
        "scripts/reproduce latest --samples 0",
        "scripts/run-matrix --machine virtual --mips 1001",
        "scripts/tabulate",
        "scripts/tabulate RUN --format nosuch",
        "scripts/tabulate results/nosuch",
        "scripts/build-variant both --nosuch",
        "scripts/drive nosuch",
        "scripts/drive cache /mnt/x nosuch",
        "scripts/setup nosuch",
        "scripts/test tests/nosuch.py",
        "scripts/nosuch",
        "scripts/tabulate latest | nosuch",
        "benchmarks/build_cost.py --nosuch",
        ".venv/bin/python benchmarks/nosuch.py",
        "docker build --target nosuch .",
        "docker build --build-arg NOSUCH=1 .",
        "docker build nosuch",
        "docker compose run --rm nosuch",
        "docker compose run --rm lab nosuch",
        "docker compose run --rm lab run-matrix --nosuch",
        "docker run --rm nosuch",
        "docker nosuch",
        "nosuch",
    ],
)
def test_a_wrong_line_is_seen(line: str) -> None:
    with pytest.raises(WrongLine):
        check(line)


@pytest.mark.parametrize(
    "script",
    [
        "build-variant",
        "drive",
        "figures",
        "power-cut",
        "reproduce",
        "run-matrix",
        "scheduler",
        "tabulate",
        "worker",
    ],
)
def test_help(script: str) -> None:
    check(f"scripts/{script} --help")
    assert module_of(script)


def figure_tables(text: str) -> list[str]:
    """Return the first lines of tables with figures that neither results/ nor a benchmark made."""
    text = figures.BLOCK.sub("", text)
    tables = re.findall(r"((?:<!-- measured: .*? -->\n\n?)?)((?:^\|.*\n?)+)", text, re.MULTILINE)
    return [
        table.splitlines()[0]
        for measured, table in tables
        if not measured and ("---:" in table or "±" in table)
    ]


@pytest.mark.parametrize("document", [README, *PAGES], ids=name_of)
def test_figures_are_those_of_results(document: Path) -> None:
    made = figures.made(document)
    assert made.stale == ()
    assert made.text == document.read_text()
    assert figure_tables(document.read_text()) == []


def test_a_table_of_figures_by_hand_is_seen() -> None:
    table = "| a | b |\n|---|---:|\n| x | 1 |\n"
    assert figure_tables(f"text\n\n{table}") == ["| a | b |"]
    assert figure_tables(f"<!-- measured: benchmarks/x.py -->\n\n{table}") == []
    assert figure_tables("| a |\n|---|\n| words |\n") == []


def run_on(monkeypatch: pytest.MonkeyPatch, page: Path, *arguments: str) -> Result:
    """Run scripts/figures on one page."""
    monkeypatch.setattr(figures, "documents", lambda: [page])
    return CliRunner().invoke(figures.command, arguments, standalone_mode=False)


def test_a_stale_figure_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "LAB", tmp_path)
    shutil.copytree(
        README.parent / "results" / "example-thread", tmp_path / "results/example-thread"
    )
    page = tmp_path / "README.md"
    right = README.read_text()
    page.write_text(right.replace("| direct io | off | 2926.8!", "| direct io | off | 2926.9!"))
    assert page.read_text() != right
    checked = run_on(monkeypatch, page, "--check")
    assert checked.return_value == 1
    assert "README.md: stale: table example-thread" in checked.stderr
    assert page.read_text() != right
    assert run_on(monkeypatch, page).return_value == 0
    assert page.read_text() == right
    assert run_on(monkeypatch, page, "--check").return_value == 0


def test_a_stale_drawing_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    words = "drawing example-read-ahead svg-curves curves.svg Time of a scan"
    page.write_text(f"<!-- figures: {words} -->\n<!-- end -->\n")
    made = figures.made(page)
    assert made.stale == (words,)
    assert "![Time of a scan](curves.svg)" in made.text
    page.write_text(made.text)
    (svg,) = made.drawings.items()
    assert svg[0] == tmp_path / "curves.svg"
    svg[0].write_text(svg[1].replace("svg", "gvs", 1))
    assert figures.made(page).stale == (words,)
    svg[0].write_text(svg[1])
    assert figures.made(page).stale == ()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("nosuch", "expected table, published"),
        ("table example-nosuch", "there is no results/example-nosuch"),
        ("table example-thread nosuch", "expected KEY=VALUE"),
        ("table example-thread nosuch=1", "no axis “nosuch”"),
        ("table example-thread sync=nosuch", "sync=nosuch: .* has fsync=false"),
        ("table example-thread variant=nosuch", "variant=nosuch: .* has direct-io"),
        ("table example-thread values=nosuch", "no figure “nosuch”"),
        ("table example-thread parts=nosuch", "nosuch"),
        ("table example-thread columns=nosuch", "no axis “nosuch”"),
        ("cuts example-thread", "no campaign"),
        ("cuts example-power-cuts variant=nosuch", "no variant “nosuch”"),
        ("file nosuch", "nosuch: No such file"),
        ("published nosuch", "nosuch"),
        ("drawing example-thread nosuch x.svg", "no drawing “nosuch”"),
        ("table", "too few words"),
        ("published archive archive", "or too many"),
    ],
)
def test_a_block_that_cannot_be_made(tmp_path: Path, words: str, reason: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- figures: {words} -->\n<!-- end -->\n")
    with pytest.raises(LabError, match=f"page.md: figures: {re.escape(words)}: .*{reason}"):
        figures.made(page)


@pytest.mark.parametrize("text", ["<!-- figures: published archive -->\n", "<!-- end -->\n"])
def test_a_block_without_a_half(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(LabError, match="has no end, or an end no block"):
        figures.made(page)


def test_a_part_of_a_table() -> None:
    words = "example-thread-2005 sync=open_sync,fsync=false write_cache=off variant=both,direct-io"
    lines = figures.table([*words.split(), "parts=mean,half,ratio"]).splitlines()
    assert lines[:-2] == [
        "| patch | open_sync | fsync=false |",
        "| --- | ---: | ---: |",
        "| both | 258.3 one run × 1.01 | 254.8! one run |",
        "| direct io | 32.7! one run × 0.13 | 254.9! one run |",
    ]
    assert lines[-1].startswith("`results/example-thread-2005`: PostgreSQL 18.6, 2026-11-22, ")
    assert "writeback cache: off. TPS. ±: half of the 95% interval. ×: relative" in lines[-1]
