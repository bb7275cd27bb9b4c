#!/usr/bin/env python3
"""Mutation testing of the modules whose tests must not have holes.

usage: .venv/bin/python benchmarks/mutation.py [--list] [--write FILE] [MODULE …]

mutmut changes one operator, argument, number or text of a module after the other, and the module's
fast tests must fail each time. It runs in the lab's sandbox, on a copy of the checkout, without
rights: a mutant of what unmounts, kills and deletes could do that to anything. Tests that need root
are skipped there. Printed are the mutants that survived, as diffs, with the reason where
benchmarks/survivors.toml knows it, and a table; the exit code is 1 if a survivor has no reason. Of
those that only change the words of an error none is asked for.

mutmut is no part of the lab's environment: it gets one of its own below the cache, once, with the
packages that benchmarks/mutation-requirements.txt pins.
"""

import argparse
import ast
import difflib
import json
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path

import msgspec

from benchmarks import copying
from wallab import paths
from wallab.errors import LabError
from wallab.files.strict import read_toml
from wallab.machine import sandbox
from wallab.machine.sandbox import Sandbox
from wallab.progress import Work

PINS = paths.LAB / "benchmarks" / "mutation-requirements.txt"
SURVIVORS = paths.LAB / "benchmarks" / "survivors.toml"

MODULES = {
    "machine.owned": ("test_scratch",),
    "machine.ledger": ("test_records",),
    "machine.scratch": ("test_scratch",),
    "machine.running": ("test_running",),
    "machine.mounts": ("test_mount_tables",),
    "machine.cacheswitch": ("test_cachetools", "test_cacheswitch"),
    "servers.diff": ("test_diff",),
    "servers.patchfile": ("test_patchfile",),
    "servers.patching": ("test_worktree", "test_hostile_patches"),
    "files.beneath": ("test_beneath",),
    "record.difference": ("test_difference",),
    "bench.plan": ("test_plan",),
    "bench.schedule": ("test_schedule",),
    "files.strict": ("test_strict",),
}
"""Module -> its tests that take a moment each."""

LEFT_OUT = ("test_nothing_outside_is_touched", "test_what_is_read_stays_in_the_tree",
            "test_mail_with_damaged_headers")  # fmt: skip
"""Tests of hundreds of inputs, which would run for every mutant that others do not find."""

PATIENCE_S = 4 * 3600.0

_UNTESTED = {5, 33, None}
_SURVIVED = 0
_TOO_LONG = {24, -24, 36, 152, 255}


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a mutant may survive."""

    module: str
    function: str
    wrong: str
    """What it has instead of a line, or a part of that."""
    reason: str


class Reasons(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """benchmarks/survivors.toml."""

    mutant: tuple[Reason, ...] = ()


class Mutant(msgspec.Struct, frozen=True):
    """One change of a function, and how its tests ended."""

    module: str
    function: str
    right: str
    """The function as it is."""
    wrong: str
    code: int | None
    """mutmut's: 0 where no test failed."""

    @property
    def outcome(self) -> str:
        """What became of it: killed, survived, or untested."""
        if self.code in _UNTESTED:
            return "untested"
        return "survived" if self.code == _SURVIVED else "killed"

    @property
    def words_alone(self) -> bool:
        """Whether only the text of an error, or of what is told, is another."""
        return _without_words(self.right) == _without_words(self.wrong)

    def diff(self) -> str:
        """Return what it changes."""
        lines = difflib.unified_diff(
            self.right.splitlines(), self.wrong.splitlines(), lineterm="", n=1
        )
        changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        return "\n".join([f"{self.module}, {self.function}:", *changed])

    def added(self) -> list[str]:
        """Return the lines that are not in the function."""
        there = self.right.splitlines()
        return [line.strip() for line in self.wrong.splitlines() if line not in there]


class _Words(ast.NodeTransformer):
    """Takes the text out of what is raised or said."""

    def __init__(self) -> None:
        self._inside = False

    def visit(self, node: ast.AST) -> ast.AST:
        saying = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say"
        if not self._inside and (isinstance(node, ast.Raise) or saying):
            self._inside = True
            node = self.generic_visit(node)
            self._inside = False
            return node
        if self._inside and isinstance(node, ast.Constant) and isinstance(node.value, str):
            return ast.Constant("")
        return self.generic_visit(node)


def _without_words(function: str) -> str:
    tree = ast.parse(textwrap.dedent(function))
    tree.body[0].name = ""  # type: ignore[attr-defined]
    return ast.dump(_Words().visit(tree))


def tool() -> Path:
    """Return the Python that has mutmut, and the lab's packages beside; make it if need be."""
    home = paths.cache() / "mutation"
    made = home / "pins"
    if not made.is_file() or made.read_bytes() != PINS.read_bytes():
        with Work("installing mutmut"):
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
            pip = ["install", "--quiet", "--require-hashes", "-r", str(PINS)]
            subprocess.run([str(home / "bin" / "pip"), *pip], check=True)
        (folder,) = home.glob("lib/python3*/site-packages")
        (folder / "lab.pth").write_text(f"{sandbox.PACKAGES}\n")
        made.write_bytes(PINS.read_bytes())
    return home / "bin" / "python"


def settings(module: str, tests: tuple[str, ...], others: list[str]) -> str:
    """Return mutmut's settings for a module; `others` is what its tests need besides."""
    files = [test.partition("::") for test in tests]
    choice = [f"tests/{file}.py{separator}{name}" for file, separator, name in files]
    left_out = " and ".join(f"not {name}" for name in LEFT_OUT)
    lines = {
        "source_paths": ["wallab"],
        "only_mutate": [f"wallab/{module.replace('.', '/')}.py"],
        "also_copy": others,
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-k", left_out],
        "pytest_add_cli_args_test_selection": choice,
        "use_git_change_detection": False,
    }
    return "\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(v)}\n" for key, v in lines.items())


def mutants_of(module: str, lab: Path, python: Path) -> list[Mutant]:
    """Make the module's mutants in that copy, run the tests on each, and return them all."""
    tests = MODULES[module]
    others = sorted(path.name for path in lab.iterdir() if path.name not in {"wallab", "tests"})
    project = lab / "pyproject.toml"
    project.write_text(project.read_text() + settings(module, tests, others))
    places = [*sandbox.lab_folders()[:-1], python.parents[1]]
    limits = msgspec.structs.replace(sandbox.default_limits(), seconds=PATIENCE_S)
    subprocess.run(["chown", "-R", str(sandbox.owner(guest=True)), lab], check=True)
    words = b""
    with Sandbox(lab, guest=True, readable=places, limits=limits) as box:
        command: list[str | Path] = [python, "-m", "mutmut", "run", "--max-children", "1"]
        try:
            for line in box.lines(command):
                words += line
        except subprocess.CalledProcessError:
            pass
    mutants = _read(module, lab / "mutants" / "wallab" / f"{module.replace('.', '/')}.py")
    if not mutants or all(mutant.code is None for mutant in mutants):
        output = words.decode(errors="replace").replace("\r", "\n")[-3000:]
        raise LabError(f"mutmut did not get through {module}:\n{output}")
    return mutants


def _read(module: str, file: Path) -> list[Mutant]:
    """Read what mutmut left of a module: its functions, in every version, and the outcomes."""
    codes = json.loads(file.with_name(f"{file.name}.meta").read_text())["exit_code_by_key"]
    spans = json.loads(file.with_name(f"{file.name}.spans").read_text())["spans"]
    lines = file.read_text().splitlines()

    def function(name: str) -> str:
        begin, end = spans[name]
        return "\n".join(lines[begin - 1 : end]).replace(name, name.partition("__mutmut")[0])

    mutants = []
    for key, code in codes.items():
        name = key.rpartition(".")[2]
        base = name.partition("__mutmut")[0]
        plain = base.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
        right = function(f"{base}__mutmut_orig")
        mutants.append(Mutant(module, plain, right, function(name), code))
    return mutants


def reason_of(mutant: Mutant, reasons: Reasons) -> str:
    """Return why the mutant may survive; nothing if nobody has said."""
    return next(
        (
            reason.reason
            for reason in reasons.mutant
            if (reason.module, reason.function) == (mutant.module, mutant.function)
            and any(reason.wrong in line for line in mutant.added() or [mutant.wrong])
        ),
        "",
    )


def row(module: str, mutants: list[Mutant], reasons: Reasons) -> str:
    """Return the module's line of the table."""
    count = Counter(mutant.outcome for mutant in mutants)
    left = [mutant for mutant in mutants if mutant.outcome != "killed"]
    words = sum(mutant.words_alone for mutant in left)
    slow = sum(mutant.code in _TOO_LONG for mutant in mutants)
    explained = sum(not m.words_alone and bool(reason_of(m, reasons)) for m in left)
    return (
        f"| {module} | {len(mutants)} | {count['killed']} | {slow} | {len(left)} | {words} "
        f"| {explained} | {len(left) - words - explained} |"
    )


HEAD = """\
| module | mutants | killed | by time | survived | in words alone | with a reason | without |
|---|---:|---:|---:|---:|---:|---:|---:|"""


def main() -> int:
    """Read the command line, mutate, print; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("module", nargs="*", help="such as machine.ledger (all that --list names)")
    parser.add_argument("--list", action="store_true", help="name modules and tests, and end")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where the table goes, too")
    given = parser.parse_args()
    if given.list:
        for module, tests in MODULES.items():
            print(f"{module:20} {' '.join(tests)}")
        return 0
    if unknown := [module for module in given.module if module not in MODULES]:
        parser.error(f"{unknown[0]}: no tests are known for it; there are {', '.join(MODULES)}")
    reasons = read_toml(SURVIVORS, Reasons)
    rows, unexplained = [HEAD], 0
    try:
        python = tool()
        for module in given.module or MODULES:
            with (
                Work(module),
                tempfile.TemporaryDirectory(prefix="wal-lab-mutants-", dir="/var/tmp") as home,
            ):
                mutants = mutants_of(module, copying.checkout(Path(home)), python)
            unexplained += tell(mutants, reasons)
            rows.append(row(module, mutants, reasons))
            print("\n".join((HEAD, rows[-1])), flush=True)
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("\n".join(rows))
    if given.write:
        given.write.write_text("\n".join(rows) + "\n")
    return 1 if unexplained else 0


def tell(mutants: list[Mutant], reasons: Reasons) -> int:
    """Print the survivors, but for those in words alone; return how many have no reason."""
    unexplained = 0
    for mutant in mutants:
        if mutant.outcome != "killed" and not mutant.words_alone:
            reason = reason_of(mutant, reasons)
            unexplained += not reason
            print(f"{mutant.outcome}: {mutant.diff()}\n  {reason or 'no reason is known'}\n")
    return unexplained


if __name__ == "__main__":
    sys.exit(main())
