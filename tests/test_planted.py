"""The faults that the lab had, and the mutants that may live: what is told of them is there."""

import ast
import shutil
from pathlib import Path

import pytest

from benchmarks import copying, mutation, planted
from benchmarks.mutation import Mutant, Reason, Reasons
from benchmarks.planted import GROUPS, Edit, Fault
from wallab import paths
from wallab.files.strict import read_toml
from wallab.servers import git

PAGES = paths.LAB / "results" / "example-safety"
FAULTS = [(group, fault) for group in GROUPS for fault in getattr(planted.read(), group)]


def functions(file: Path) -> set[str]:
    """The names of the functions and methods of a module, as Class.method."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        within = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        names |= {f"{prefix}{each.name}" for each in within if isinstance(each, ast.FunctionDef)}
    return names


@pytest.mark.parametrize(("group", "fault"), FAULTS, ids=lambda value: getattr(value, "was", value))
def test_fault_has_its_place_and_its_tests(group: str, fault: Fault) -> None:
    text = (paths.LAB / fault.file).read_text()
    assert planted.planted(fault, text) not in (None, text), "plant this fault anew"
    assert fault.tests
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert name in functions(paths.LAB / file), f"{group}: there is no {test}"


@pytest.mark.parametrize("group", GROUPS)
def test_tables_are_those_of_the_faults(group: str) -> None:
    """Written by benchmarks/planted.py when each was seen to be found."""
    assert (PAGES / f"{group}.md").read_text() == planted.table(getattr(planted.read(), group))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A small checkout with a test."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "code.py").write_text("ONE = 1\nTWO = 2\n")
    (tmp_path / "tests" / "test_code.py").write_text(
        "import pytest, code_\n"
        "def test_one(): assert code_.ONE == 1\n"
        "def test_skipped(): pytest.skip('not here')\n"
    )
    (tmp_path / "code.py").rename(tmp_path / "code_.py")
    shutil.copy(paths.LAB / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("right", "also", "test", "came"),
    [
        ("ONE = 1", None, "test_one", "found"),
        ("TWO = 2", None, "test_one", "not found"),
        ("TWO = 2", Edit("ONE = 1", "ONE = 3"), "test_one", "found"),
        ("THREE = 3", None, "test_one", "no place"),
        ("= ", None, "test_one", "no place"),
        ("ONE = 1", Edit("= ", ""), "test_one", "no place"),
        ("ONE = 1", None, "test_skipped", "skipped"),
        ("ONE = 1", None, "test_nosuch", "skipped"),
    ],
)
def test_faults_are_planted_and_taken_out(
    lab: Path, right: str, also: Edit | None, test: str, came: str
) -> None:
    fault = Fault("", "code_.py", right, "THREE = 3", (), also)
    assert planted.outcome(fault, f"tests/test_code.py::{test}", lab) == came
    assert (lab / "code_.py").read_text() == "ONE = 1\nTWO = 2\n"


def test_faults_are_planted_in_a_copy(tmp_path: Path) -> None:
    lab = copying.checkout(tmp_path)
    assert (lab / "pyproject.toml").read_bytes() == (paths.LAB / "pyproject.toml").read_bytes()
    assert not (lab / "pyproject.toml").samefile(paths.LAB / "pyproject.toml")
    assert git.state(lab) != git.state(paths.LAB)
    assert not (lab / "build").exists()


# Mutants.


@pytest.mark.parametrize("module", mutation.MODULES)
def test_modules_that_are_mutated_have_their_tests(module: str) -> None:
    assert (paths.LAB / "wallab" / f"{module.replace('.', '/')}.py").is_file()
    for test in mutation.MODULES[module]:
        file, _, name = test.partition("::")
        assert (paths.LAB / "tests" / f"{file}.py").is_file()
        assert not name or name in functions(paths.LAB / "tests" / f"{file}.py")


def test_survivors_are_of_functions_that_there_are() -> None:
    for reason in read_toml(mutation.SURVIVORS, Reasons).mutant:
        file = paths.LAB / "wallab" / f"{reason.module.replace('.', '/')}.py"
        assert reason.function in functions(file), reason
        assert reason.module in mutation.MODULES


RIGHT = "def f(a):\n    if a > 1:\n        raise ValueError(f'too {a} large')\n    return a"


@pytest.mark.parametrize(
    ("right", "wrong", "alone"),
    [
        ("too {a} large", "XXtoo {a} largeXX", True),
        ("f'too {a} large'", "None", False),
        ("{a}", "{a + 1}", False),
        ("a > 1", "a >= 1", False),
        ("return a", "return 'a'", False),
    ],
)
def test_mutants_of_words(right: str, wrong: str, alone: bool) -> None:
    assert RIGHT.count(right) == 1
    mutant = Mutant("m", "f", RIGHT, RIGHT.replace(right, wrong), 0)
    assert mutant.words_alone is alone
    assert wrong in mutant.diff()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(0, "survived"), (1, "killed"), (36, "killed"), (33, "untested"), (None, "untested")],
)
def test_outcomes_of_mutants(code: int | None, outcome: str) -> None:
    assert Mutant("m", "f", RIGHT, RIGHT, code).outcome == outcome


def test_reasons_are_those_of_a_line() -> None:
    reasons = Reasons((Reason("m", "f", "a >= 1", "for no reason"),))
    wrong = RIGHT.replace("a > 1", "a >= 1")
    assert mutation.reason_of(Mutant("m", "f", RIGHT, wrong, 0), reasons) == "for no reason"
    assert mutation.reason_of(Mutant("m", "g", RIGHT, wrong, 0), reasons) == ""
    assert mutation.reason_of(Mutant("m", "f", RIGHT, RIGHT + " + 1", 0), reasons) == ""
    # One that takes a line away has none of its own.
    shorter = wrong.replace("    return a", "").rstrip()
    assert mutation.reason_of(Mutant("m", "f", wrong, shorter, 0), reasons) == "for no reason"
