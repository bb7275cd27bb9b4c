"""Children: none is lost, whatever interrupts the lab and whenever."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from wallab.machine import process

STARTING = 1.0
"""Seconds that a child takes between fork and exec, where a test makes it slow."""


@pytest.fixture
def slow_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Children take their time before they execute anything; none is left afterwards."""
    monkeypatch.setattr(process, "_die_with_parent", lambda deadly: lambda: time.sleep(STARTING))
    before = psutil.Process().children()
    yield
    left = [child for child in psutil.Process().children() if child not in before]
    for child in left:
        child.kill()
        child.wait()
    assert left == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts are acted on, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_soon() -> None:
    """Interrupt this process while a child is started."""
    threading.Timer(STARTING / 3, os.kill, (os.getpid(), signal.SIGINT)).start()


def spawned() -> None:
    """Start a child, and nothing more."""
    process.spawn(["sleep", "600"])


def within() -> None:
    """Start a child for a block, which is not to be entered."""
    with process.started(["sleep", "600"]):
        pytest.fail("the block was entered")


@pytest.mark.usefixtures("slow_start", "interruptible")
@pytest.mark.parametrize("start", [spawned, within])
def test_a_child_whose_start_is_interrupted_is_not_lost(start: Callable[[], None]) -> None:
    interrupt_soon()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        start()
    assert time.monotonic() - begun >= STARTING
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("slow_start")
def test_what_ignores_interrupts_goes_on() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupt_soon()
        with process.started(["sleep", "0"]) as child:
            assert child.wait(60) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_block_that_fails_ends_the_whole_group() -> None:
    shell = ["sh", "-c", "sleep 600 & echo $!; wait"]
    grandchildren = []

    def fail() -> None:
        with process.started(shell, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            grandchildren.append(psutil.Process(int(child.stdout.readline())))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    (grandchild,) = grandchildren
    psutil.wait_procs(grandchildren, 60)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_a_program_that_is_not_there() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(FileNotFoundError), process.started(["/nowhere/at/all"]):
        pytest.fail("the block was entered")
    assert signal.getsignal(signal.SIGINT) is before
