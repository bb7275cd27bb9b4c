"""scripts/figures: the tables of figures in README.md and docs/, made from the committed runs."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from wallab import paths
from wallab.command import outcome
from wallab.errors import LabError
from wallab.powercut import conduct, display, marks
from wallab.progress import say
from wallab.record import manifest, reference
from wallab.results import tabulation
from wallab.results.export import extract, markdown

EPILOG = """\b
Examples:
  scripts/figures            write the blocks that results/ no longer agrees with
  scripts/figures --check    only name them

\b
A block begins with a comment that says what is in it, and ends with another:
  <!-- figures: table RUN [rows=AXIS,…] [columns=AXIS] [AXIS=VALUE,…] [values=NAME,…]
                [parts=PART,…] [cuts=CAMPAIGN,…] -->
  <!-- figures: published REFERENCE -->
  <!-- figures: cuts CAMPAIGN [variant=NAME,…] -->
  <!-- figures: file PATH -->
  <!-- figures: drawing RUN svg-time FILE.svg [AXIS=VALUE,…] TITLE -->
  <!-- end -->
"""

BLOCK = re.compile(
    r"^(?P<begin><!-- figures: (?P<words>.*?) -->\n)(?P<content>.*?)(?P<end>^<!-- end -->$)",
    re.MULTILINE | re.DOTALL,
)


class Document(msgspec.Struct, frozen=True):
    """A document with its blocks as results/ would have them."""

    file: Path
    text: str
    stale: tuple[str, ...]
    """What the blocks are that were different."""
    drawings: dict[Path, str]
    """Theirs, beside it."""


class BlockContent(msgspec.Struct, frozen=True):
    """What is in a block, with the file of a drawing if it has one."""

    markdown: str
    file: Path | None = None
    svg: str = ""

    @property
    def is_drawn(self) -> bool:
        """Whether its drawing is in its file."""
        return not self.file or (self.file.exists() and self.file.read_text() == self.svg)


def example(name: str) -> Path:
    """Return a committed run or campaign; LabError if there is none of that name."""
    folder = paths.LAB / "results" / name
    if not folder.is_dir():
        raise LabError(f"there is no results/{name}")
    return folder


def _options(words: list[str]) -> dict[str, tuple[str, ...]]:
    """Read KEY=VALUE,… words."""
    options = {}
    for word in words:
        key, sign, names = word.partition("=")
        if not sign:
            raise LabError(f"“{word}”: expected KEY=VALUE,…")
        options[key] = tuple(names.split(","))
    return options


def table(words: list[str]) -> str:
    """Return a part of a run's table."""
    name, *rest = words
    options = _options(rest)
    rows = options.pop("rows", ())
    (column,) = options.pop("columns", (None,))
    campaigns = [example(campaign) for campaign in options.pop("cuts", ())]
    run = example(name)
    mark = marks.of(campaigns, manifest.load(run)) if campaigns else None
    results = tabulation.results_of(run, rows, column, mark=mark)
    chosen: dict[str, object] = {
        key: options.pop(key) for key in ("values", "parts") if key in options
    }
    try:
        choice = msgspec.convert(chosen | {"only": options}, extract.Excerpt)
    except msgspec.ValidationError as error:
        raise LabError(str(error)) from None
    return extract.render(results.table, choice, f"results/{name}")


def published(words: list[str]) -> str:
    """Return the tables of a reference."""
    (name,) = words
    return "\n\n".join(map(extract.published, reference.load(name).table))


def cuts(words: list[str]) -> str:
    """Return the verdicts of a campaign, and what it comes to."""
    name, *rest = words
    variants = _options(rest).get("variant", ())
    report = conduct.report(example(name))
    titles = report.campaign.titles.get("variant", {})
    verdicts = [
        verdict for verdict in report.cells if not variants or verdict.cell.variant in variants
    ]
    for variant in variants:
        if not any(verdict.cell.variant == variant for verdict in verdicts):
            raise LabError(f"no variant “{variant}” in {name}")
    laid_out = display.layout(verdicts, titles)
    # Its second line says of what, its last one what it comes to.
    lines = display.render(report).splitlines()
    about = markdown.escape(f"{lines[1]}. {lines[-1]}")
    lines = extract.lines_of(laid_out.heads, laid_out.naming, laid_out.rows)
    return "\n".join([*lines, "", f"`results/{name}`: {about}"])


def file(words: list[str]) -> str:
    """Return the content of a committed file."""
    (name,) = words
    try:
        return (paths.LAB / name).read_text().rstrip("\n")
    except OSError as error:
        raise LabError(f"{name}: {error.strerror}") from None


KINDS: dict[str, Callable[[list[str]], str]] = {
    "table": table,
    "published": published,
    "cuts": cuts,
    "file": file,
}


def drawing(words: list[str], folder: Path) -> BlockContent:
    """Return a drawing of a run, in a file beside the document."""
    run, kind, name, *rest = words
    options = _options([word for word in rest if "=" in word])
    title = " ".join(word for word in rest if "=" not in word)
    if kind not in tabulation.KINDS:
        raise LabError(f"no drawing “{kind}”; there are {', '.join(tabulation.KINDS)}")
    results = tabulation.results_of(example(run))
    narrowed = extract.narrowed(results.table, options)
    svg = tabulation.render(msgspec.structs.replace(results, table=narrowed), kind)
    return BlockContent(f"![{title}]({name})", folder / name, svg)


def content_of(words: list[str], folder: Path) -> BlockContent:
    """Return what a block that says these words has in it; LabError if it cannot be made."""
    try:
        kind, *rest = words
        if kind == "drawing":
            return drawing(rest, folder)
        if kind not in KINDS:
            raise LabError(f"expected {', '.join((*KINDS, 'drawing'))}")
        return BlockContent(KINDS[kind](rest))
    except ValueError:
        raise LabError("too few words, or too many; see scripts/figures --help") from None


def made(document: Path) -> Document:
    """Return the document as results/ would have it; LabError for a block that cannot be made."""
    text = document.read_text()
    where = document.relative_to(paths.LAB) if document.is_relative_to(paths.LAB) else document
    stale: list[str] = []
    drawings: dict[Path, str] = {}

    def block(match: re.Match[str]) -> str:
        try:
            content = content_of(match["words"].split(), document.parent)
        except LabError as error:
            raise LabError(f"{where}: figures: {match['words']}: {error}") from None
        inside = f"\n{content.markdown}\n\n"
        if inside != match["content"] or not content.is_drawn:
            stale.append(match["words"])
            if content.file:
                drawings[content.file] = content.svg
        return f"{match['begin']}{inside}{match['end']}"

    changed = BLOCK.sub(block, text)
    halves = (text.count("<!-- figures:"), len(BLOCK.findall(text)), text.count("<!-- end -->"))
    if len(set(halves)) > 1:
        raise LabError(f"{where}: a block of figures has no end, or an end no block")
    return Document(document, changed, tuple(stale), drawings)


def documents() -> list[Path]:
    """Return README.md and the pages of docs/."""
    return [paths.LAB / "README.md", *sorted((paths.LAB / "docs").glob("*.md"))]


@click.command(epilog=EPILOG)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if one is stale.")
def command(only_check: bool) -> int:
    """Make the tables of figures in README.md and docs/ again from the runs in results/."""
    stale = False
    for document in map(made, documents()):
        for words in document.stale:
            stale = True
            name = document.file.relative_to(paths.LAB)
            say(f"{name}: {'stale' if only_check else 'written'}: {words}")
        if not only_check and document.stale:
            for picture, svg in document.drawings.items():
                picture.write_text(svg)
            document.file.write_text(document.text)
    if only_check and stale:
        say("make them again with: scripts/figures")
    return 1 if only_check and stale else 0


if __name__ == "__main__":
    sys.exit(outcome.run(command, "figures"))
