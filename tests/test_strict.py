"""TOML files are read strictly: what is wrong in one is told with its key, or its line."""

import codecs
from pathlib import Path

import msgspec
import pytest

from wallab.errors import LabError
from wallab.files import strict


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table."""

    size: int
    sort: str = ""
    more: dict[str, int] = {}


class Middle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of tables."""

    part: dict[str, Inner]
    number: int = 0


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file."""

    thing: dict[str, Middle] = {}
    count: int = 0
    counts: tuple[int, ...] = ()
    deep: dict[str, dict[str, dict[str, int]]] = {}


def given(folder: Path, text: str | bytes) -> Path:
    """A file with the text."""
    file = folder / "x.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def refusal(folder: Path, text: str | bytes) -> str:
    """What is said of a file, after its name."""
    file = given(folder, text)
    with pytest.raises(LabError) as refused:
        strict.read_toml(file, Outer)
    name, _, words = str(refused.value).partition(": ")
    assert name == str(file)
    return words


TREE = """\
[thing.one.part.a]
size = 1
[thing.one.part.b]
size = 2
[thing.two.part.a]
size = 3
[thing.two.part.b]
size = 4
"""


def test_what_is_right_is_read(tmp_path: Path) -> None:
    read = strict.read_toml(given(tmp_path, f"count = -5\n{TREE}"), Outer)
    assert read.count == -5
    assert read.thing["two"].part == {"a": Inner(3), "b": Inner(4)}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size = 1", "size = 'x'", "thing.one.part.a.size: expected `int`, got `str`"),
        ("size = 2", "size = 'x'", "thing.one.part.b.size: expected `int`, got `str`"),
        ("size = 3", "size = 'x'", "thing.two.part.a.size: expected `int`, got `str`"),
        ("size = 4", "size = 'x'", "thing.two.part.b.size: expected `int`, got `str`"),
        ("size = 4", "sizes = 4", "thing.two.part.b: object contains unknown field `sizes`"),
        ("size = 3\n", "", "thing.two.part.a: object missing required field `size`"),
        ("[thing.two.part.a]", "[thing.two]\nnumber = ''\n[thing.two.part.a]",
         "thing.two.number: expected `int`, got `str`"),
        ("[thing.one.part.a]", "count = ''\n[thing.one.part.a]",
         "count: expected `int`, got `str`"),
        ("[thing.one.part.a]", "counts = [1, '']\n[thing.one.part.a]",
         "counts[1]: expected `int`, got `str`"),
        ("[thing.one.part.a]", "x = 1\n[thing.one.part.a]", "object contains unknown field `x`"),
        ("size = 1", "sort = ' - at '", "thing.one.part.a: object missing required field `size`"),
        ("size = 4", "size = 4\n' - at x' = 1",
         "thing.two.part.b: object contains unknown field ` - at x`"),
        ("size = 4", "size = 4\nmore = { a = 1, b = '' }",
         "thing.two.part.b.more.b: expected `int`, got `str`"),
        ("size = 4", 'size = 4\n"x\\ny" = 1',
         "thing.two.part.b: object contains unknown field `x\ny`"),
    ],
)  # fmt: skip
def test_the_key_is_told(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert TREE.count(old) == 1
    assert refusal(tmp_path, TREE.replace(old, new)) == words


def test_of_two_mistakes_the_first_is_told(tmp_path: Path) -> None:
    text = TREE.replace("size = 2", "size = ''").replace("size = 3", "size = ''")
    assert refusal(tmp_path, text) == "thing.one.part.b.size: expected `int`, got `str`"


def test_mistakes_that_only_show_together_have_a_key_all_the_same(tmp_path: Path) -> None:
    text = TREE.replace("size = 1", "size = []").replace("size = 3", "size = ''")
    assert refusal(tmp_path, text) == "thing.one.part.a.size: expected `int`, got `array`"


def test_keys_of_tables_in_tables_in_tables(tmp_path: Path) -> None:
    names = [f"{a}.{b}.{c}" for a in "xy" for b in "yx" for c in "yz"]
    right = "".join(f"deep.{name} = 1\n" for name in names)
    assert strict.read_toml(given(tmp_path, right), Outer).deep["y"]["x"]["z"] == 1
    for name in names:
        wrong = right.replace(f"{name} = 1", f"{name} = ''")
        assert refusal(tmp_path, wrong) == f"deep.{name}: expected `int`, got `str`"


LARGEST = 2**63 - 1


@pytest.mark.parametrize("number", [LARGEST, -LARGEST - 1, 0])
def test_numbers_of_64_bits_are_read(tmp_path: Path, number: int) -> None:
    assert strict.read_toml(given(tmp_path, f"count = {number}"), Outer).count == number


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"count = {LARGEST + 1}", "count"),
        (f"count = {-LARGEST - 2}", "count"),
        (f"count = 1\ncounts = [1, 2, {LARGEST + 1}]", "counts.2"),
        (f"'.x.' = {LARGEST + 1}", ".x."),
        (f"[thing.'.X'.part.'X']\nsize = {LARGEST + 1}", "thing..X.part.X.size"),
    ],
)
def test_larger_numbers_are_refused(tmp_path: Path, text: str, key: str) -> None:
    assert refusal(tmp_path, text) == f"{key}: expected a number of 64 bits"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("count = " + "9" * 5000, 1),
        ("count = 1\n\ncounts = [1, " + "9" * 4301 + "]\n# " + "1" * 5000, 3),
        ("count = " + "1_" * 4300 + "1", 1),
    ],
)
def test_numbers_that_python_does_not_read(tmp_path: Path, text: str, line: int) -> None:
    assert refusal(tmp_path, text) == f"line {line}: expected a number of 64 bits"


def test_a_number_whose_line_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(text: str) -> dict[str, object]:
        raise ValueError(f"no number: {text}")

    monkeypatch.setattr(strict.tomllib, "loads", unread)  # type: ignore[attr-defined]
    assert refusal(tmp_path, "count = 1") == "line ?: expected a number of 64 bits"


def test_no_toml(tmp_path: Path) -> None:
    assert refusal(tmp_path, "count = = 1").startswith("Invalid value (at line 1, column ")


def test_nested_too_deeply(tmp_path: Path) -> None:
    assert refusal(tmp_path, "count = " + "[" * 100_000) == (
        "tables or arrays are nested too deeply"
    )


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=rf"^{tmp_path}/none: no such file$"):
        strict.read_text(tmp_path / "none")
    with pytest.raises(LabError, match=rf"^{tmp_path}: Is a directory$"):
        strict.read_text(tmp_path)
    assert refusal(tmp_path, b"count = 1 # \xe9") == "byte 12: expected text in UTF-8"


def test_text_is_utf_8_wherever_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = given(tmp_path, "ä")
    read_bytes, encodings = Path.read_bytes, []

    def read_text(path: Path, encoding: str | None = None) -> str:
        encodings.append(codecs.lookup(encoding or "latin-1").name)
        return read_bytes(path).decode(encodings[-1])

    monkeypatch.setattr(Path, "read_text", read_text)
    assert strict.read_text(file) == "ä"
    assert encodings == ["utf-8"]
