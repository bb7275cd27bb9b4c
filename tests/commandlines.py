"""The command lines of a document: found, and read by the command that they are for."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
from click.testing import CliRunner

from wallab import paths
from wallab.command import entry
from wallab.errors import LabError
from wallab.machine import provision

FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:scripts/|benchmarks/|\.venv/|docker )[^`]*)`")
SEPARATORS = {"|", "&&", ";"}
PLACEHOLDER = re.compile(r"^[A-Z]+(\.png|…)?$|^latest$")
"""What stands for a name of the reader's, or for something that only a reader has."""

OTHERS = {
    "tar": ["-C ~/.cache --transform s,^,var/cache/, -c wal-lab/ccache wal-lab/sources"],
    "meson": ["setup /tmp/d drive", "test -C /tmp/d timing"],
    "uv": [
        "pip compile --universal --generate-hashes --no-header --python-version 3.11 "
        "pyproject.toml -o requirements.txt",
        "pip compile --universal --generate-hashes --no-header --python-version 3.11 "
        "pyproject.toml --extra fleet -c requirements.txt -o requirements-fleet.txt",
        "pip compile --universal --generate-hashes --no-header --python-version 3.11 "
        "pyproject.toml --extra test -c requirements-fleet.txt -o requirements-test.txt",
    ],
}
"""Programs that are not the lab's, with the arguments that were tried by hand."""


class WrongLine(Exception):
    """The command would refuse it."""


class CommandLine(NamedTuple):
    """A command with its arguments, and where it stands."""

    document: Path
    line: int
    text: str

    @property
    def name(self) -> str:
        """It for a list of tests."""
        return f"{self.document.relative_to(paths.LAB)}:{self.line}: {self.text}"


def lines_of(document: Path) -> Iterator[CommandLine]:
    """Yield the lines of a document's sh blocks, and its commands with arguments in the text."""
    text = document.read_text()

    def number(at: int) -> int:
        return text.count("\n", 0, at) + 1

    for block in FENCE.finditer(text):
        at = number(block.start())
        lines = block[1].replace("\\\n", " ").splitlines()
        yield from (CommandLine(document, at, line.strip()) for line in lines if line.strip())
    for span in SPAN.finditer(FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)):
        command = " ".join(span[1].split())
        if " " in command and command != "docker run":
            yield CommandLine(document, number(span.start()), command)


def commands_of(line: str) -> list[list[str]]:
    """Return the words of each command of a line, without comments, redirections and variables."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    words = iter(lexer)
    for word in words:
        if word in SEPARATORS:
            commands.append([])
        elif word in {">", "<"}:
            next(words)
        elif commands[-1] or not re.match(r"[A-Z_]+=", word):
            commands[-1].append(word)
    return commands


def module_of(script: str) -> str:
    """Return the module that a script runs; WrongLine if there is no such script."""
    file = paths.LAB / "scripts" / script
    match = re.search(r"-m (wallab\.[\w.]+)", file.read_text()) if file.is_file() else None
    if match is None:
        raise WrongLine(f"there is no scripts/{script}")
    return match[1]


def _read(command: click.Command, name: str, words: list[str]) -> None:
    """Let click read the words as it would for the user, and run nothing."""
    try:
        if isinstance(command, click.Group):
            with click.Context(command, info_name=name) as group:
                _, inner, rest = command.resolve_command(group, words)
            assert inner is not None
            _read(inner, f"{name} {inner.name}", rest)
        else:
            command.make_context(name, list(words))
    except click.exceptions.Exit:
        pass  # --help
    except click.ClickException as error:
        raise WrongLine(error.format_message()) from None
    except LabError as error:
        raise WrongLine(str(error)) from None


def _run(command: click.Command, words: list[str]) -> None:
    """Run the command; WrongLine if it fails."""
    outcome = CliRunner().invoke(command, words, standalone_mode=False)
    if outcome.exception or outcome.return_value:
        raise WrongLine(str(outcome.exception or outcome.output))


def _is_harmless(script: str, words: list[str]) -> bool:
    """Whether a line reads what is in the checkout alone, and takes a moment."""
    if any(PLACEHOLDER.match(word) for word in words):
        return False
    return script in {"tabulate", "run-matrix", "power-cut"} or words in (["--list"], ["profiles"])


def check_script(script: str, words: list[str]) -> None:
    """Read the arguments of one of scripts/ as it would, and run it where that does no harm."""
    module = module_of(script)
    if script == "setup":
        groups = provision.PACKAGES.keys() - {"base"}
        if unknown := set(words) - groups - {"--help", "--quiet"}:
            raise WrongLine(f"setup knows no {unknown}")
    elif script == "test":
        for word in words:
            if word.startswith("tests/") and not (paths.LAB / word).exists():
                raise WrongLine(f"there is no {word}")
    else:
        command: click.Command = importlib.import_module(module).command
        _read(command, script, words)
        if _is_harmless(script, words):
            # A variant of the reader's own is measured as one of the lab's.
            words = [re.sub(r"\bfoo\b", "both", word) for word in words]
            dry = ["--dry-run"] if script in {"run-matrix", "power-cut"} else []
            _run(command, [*words, *dry])


def _check_image_command(words: list[str]) -> None:
    """Check what follows the name of an image or a service."""
    if words and entry.command_line(words) is None:
        raise WrongLine(f"the image knows no {words[0]}")
    if words and words[0] in entry.COMMANDS:
        check_script(words[0], words[1:])


def _options(words: list[str], known: dict[str, bool]) -> tuple[dict[str, list[str]], list[str]]:
    """Split options, known with whether they have a value, from what follows them."""
    options: dict[str, list[str]] = {}
    words = list(words)
    while words and words[0].startswith("-"):
        name = words.pop(0)
        if name not in known:
            raise WrongLine(f"unknown option {name}")
        options.setdefault(name, []).append(words.pop(0) if known[name] else "")
    return options, words


def _check_build(words: list[str]) -> None:
    dockerfile = (paths.LAB / "Dockerfile").read_text()
    options, rest = _options(words, {"-t": True, "--target": True, "--build-arg": True})
    if rest != ["."]:
        raise WrongLine(f"docker build: {rest}")
    for target in options.get("--target", []):
        if not re.search(rf"^FROM .* AS {re.escape(target)}$", dockerfile, re.MULTILINE):
            raise WrongLine(f"the Dockerfile has no target {target}")
    for argument in options.get("--build-arg", []):
        name = argument.partition("=")[0]
        if not re.search(rf"^ARG {re.escape(name)}\b", dockerfile, re.MULTILINE):
            raise WrongLine(f"the Dockerfile has no argument {name}")


def _services() -> list[str]:
    """Return the services of compose.yaml."""
    text = (paths.LAB / "compose.yaml").read_text()
    (services,) = re.findall(r"^services:\n((?:(?: .*|#.*)?\n)+)", text, re.MULTILINE)
    return re.findall(r"^  (\w+):$", services, re.MULTILINE)


def check_docker(words: list[str]) -> None:
    """Check a command of docker: what it names is in the Dockerfile, compose.yaml and the image."""
    first, *rest = words
    known = {"--rm": False, "-v": True}
    if first == "build":
        _check_build(rest)
    elif first == "run":
        _, rest = _options(rest, known)
        if not rest[0].startswith("wal-lab"):
            raise WrongLine(f"{rest[0]} is no image of the lab")
        _check_image_command(rest[1:])
    elif first == "compose" and rest[0] in {"build", "run"}:
        _, (service, *command) = _options(rest[1:], known)
        if service not in _services():
            raise WrongLine(f"compose.yaml has no service {service}")
        _check_image_command(command)
    elif words != ["import", "-", "wal-lab:cache"]:
        raise WrongLine(f"docker {first} is not known here")


def check_benchmark(file: str, words: list[str]) -> None:
    """Check that a benchmark is there and knows its options."""
    if not (paths.LAB / file).is_file():
        raise WrongLine(f"there is no {file}")
    text = (paths.LAB / file).read_text()
    for word in words:
        if word.startswith("--") and f'"{word}"' not in text:
            raise WrongLine(f"{file} has no {word}")


def _check_other(program: str, words: list[str]) -> None:
    if " ".join(words) not in OTHERS.get(program, []):
        raise WrongLine(f"{program} {' '.join(words)}: not tried by hand (OTHERS)")


def check(line: str) -> None:
    """Check a line: WrongLine if it would be refused, or if nothing here knows it."""
    for program, *words in commands_of(line):
        if program.startswith("scripts/"):
            check_script(program.removeprefix("scripts/"), words)
        elif program.startswith("benchmarks/"):
            check_benchmark(program, words)
        elif program == ".venv/bin/python" and words:
            check_benchmark(words[0], words[1:])
        elif program == "docker":
            check_docker(words)
        else:
            _check_other(program, words)
