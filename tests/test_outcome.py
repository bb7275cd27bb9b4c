"""How commands end: exit codes that mean something, and words instead of tracebacks."""

import signal
import subprocess
import sys

import pytest

from wallab import paths

COMMAND = """
import os, signal, sys, time
import click
from wallab.command import outcome
from wallab.errors import LabError, MachineError

@click.command()
def command():
    {body}

outcome.run(command, "test")
"""


def hear() -> None:
    """What a child runs first: the tests may run behind nohup, which it would inherit."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def end(body: str, *before: str) -> subprocess.CompletedProcess[str]:
    """Run a command of that body, behind other words."""
    return subprocess.run(
        [*before, sys.executable, "-c", COMMAND.format(body=body)],
        capture_output=True, text=True, timeout=120, cwd=paths.LAB, preexec_fn=hear,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "errors"),
    [
        ("return 1", 1, ""),
        ("raise LabError('do this instead')", 2, "test: do this instead\n"),
        ("raise MachineError('it takes root')", 3, "test: it takes root\n"),
        ("open('/proc/none')", 3, "test: /proc/none: No such file or directory\n"),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", 130, "test: interrupted\n"),
        ("os.kill(os.getpid(), signal.SIGHUP); time.sleep(60)", 130, "test: interrupted\n"),
    ],
)
def test_exit_codes(body: str, code: int, errors: str) -> None:
    ended = end(body)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", errors)


def test_a_fault_of_the_lab_is_no_failed_gate() -> None:
    ended = end("1 / 0")
    assert ended.returncode == 70
    assert "ZeroDivisionError" in ended.stderr


def test_nohup_outlives_its_terminal() -> None:
    ended = end("os.kill(os.getpid(), signal.SIGHUP); print('goes on')", "nohup")
    assert (ended.returncode, ended.stdout) == (0, "goes on\n")


@pytest.mark.parametrize("amount", [10, 1_000_000])
def test_a_reader_that_has_enough(amount: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(body=f"time.sleep(0.5); print('x' * {amount})")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=paths.LAB,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.close()
    child.stdout = None
    _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (0, b"")
