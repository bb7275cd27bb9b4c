"""Names in the lab's Python: a noun of what they hold."""

import ast
from collections.abc import Iterator

import pytest

from wallab import paths

NO_NOUNS = {"found", "said", "told", "shown", "one"}


def names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each variable and argument that the module gives one."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


@pytest.mark.parametrize("folder", ["wallab", "benchmarks", "tests"])
def test_variables_are_called_by_nouns(folder: str) -> None:
    files = sorted((paths.LAB / folder).rglob("*.py"))
    assert files
    wrong = [
        f"{file.relative_to(paths.LAB)}:{line}: {name}"
        for file in files
        for line, name in names(file.read_text())
        if name in NO_NOUNS
    ]
    assert wrong == []


def test_each_way_to_name_is_seen() -> None:
    text = "found = 1\nfor told in []: pass\n(lambda one: 0)\nif said := 1: pass\n"
    text += "with open('') as shown: pass\n[found for found in []]\n"
    assert [name for _, name in sorted(names(text))] == [
        "found", "told", "one", "said", "shown", "found",
    ]  # fmt: skip
