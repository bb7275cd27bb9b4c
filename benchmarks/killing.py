"""Kill the lab's commands at random moments, and see that the next ones clear up behind them.

benchmarks/killed_drives.py and killed_runs.py do it many times, the tests a few.
"""

import argparse
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.leftovers import wait_for_nothing
from wallab import paths
from wallab.drives import byhand as handdrive
from wallab.errors import LabError
from wallab.progress import Work
from wallab.record import manifest
from wallab.record.samples import SAMPLES, SampleFile

PATIENCE = 1800
"""Seconds that a command may take which is not killed."""


class LeftBehindError(Exception):
    """A kill left something that the next command did not clear."""


def command_of(name: str, *arguments: str | Path) -> list[str]:
    """Return the command line of one of the lab's scripts."""
    return [str(paths.LAB / "scripts" / name), *map(str, arguments)]


def finish(command: list[str]) -> float:
    """Run a command that must succeed; return the seconds it took."""
    begun = time.monotonic()
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if result.returncode:
        raise LeftBehindError(
            f"{' '.join(command)} exited with {result.returncode}: {result.stderr.strip()}"
        )
    return time.monotonic() - begun


def kill(
    command: list[str],
    delay: float,
    how: signal.Signals,
    begun: Callable[[], bool] = lambda: True,
) -> bool:
    """Start a command and send it the signal; return whether it was in time.

    The delay (s) counts from when it has `begun`. LeftBehindError if it failed by itself.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE
    while not begun() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        _, errors = child.communicate(timeout=delay)
    except subprocess.TimeoutExpired:
        child.send_signal(how)
        # Its orphans may hold the pipe for a while; the next command ends them.
        child.wait(PATIENCE)
        if child.stderr is not None:
            child.stderr.close()
        return True
    if child.returncode:
        raise LeftBehindError(f"{' '.join(command)} failed: {errors.strip()}")
    return False


def _expect_nothing(where: str) -> None:
    if left := wait_for_nothing(60):
        raise LeftBehindError(f"{where}: left behind: {left}")


def _is_up(place: Path) -> bool:
    return any(drive.mount_point == place for drive in handdrive.every())


def drives(count: int, seed: int, work: Work) -> Counter[str]:
    """Kill `scripts/drive up` and `down`, in turn, so many times in all.

    Returns how many kills found what: a drive that stayed up, or nothing. LeftBehindError if
    anything else was there after the next command.
    """
    chance = random.Random(seed)  # noqa: S311
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="wallab-killed-") as home:
        place = Path(home).resolve()
        up, down = (command_of("drive", verb, place) for verb in ("up", "down"))
        up += ["--size", "512M"]
        seconds = {"up": finish(up), "down": finish(down)}
        for number in range(count):
            verb = ("up", "down")[number % 2]
            how = chance.choice((signal.SIGKILL, signal.SIGTERM))
            delay = chance.uniform(0, 1.1 * seconds[verb])
            where = f"kill {number + 1}: {verb} after {delay:.3f} s with {how.name}"
            work.update(number / count, where)
            if verb == "down":
                finish(up)
            in_time = kill(up if verb == "up" else down, delay, how)
            finish(command_of("drive", "restore"))
            stayed = _is_up(place)
            if stayed:
                finish(down)
            _expect_nothing(where)
            state = "drive stayed" if stayed else "nothing"
            counts[f"{verb}, {how.name if in_time else 'ended before'}: {state}"] += 1
    return counts


def runs(
    count: int,
    seed: int,
    what: Sequence[str],
    options: Sequence[str | Path],
    home: Path,
    work: Work,
    *,
    within: float = 30,
) -> Counter[str]:
    """Kill -9 `scripts/run-matrix WHAT OPTIONS` so many times, resume it, and finish it.

    Every other kill comes within so many seconds of the start, and those between within a third of
    that after another sample, however slow the machine is. A run that ends before the kills do is
    followed by another; they go to folders below `home`. Returns how many samples the kills found;
    LeftBehindError if one was lost or doubled, or anything stayed on the machine after the next
    command.
    """
    chance = random.Random(seed)  # noqa: S311
    counts: Counter[str] = Counter()
    run = _Run(home / "1", what, options, seed)
    for number in range(count):
        late = number % 2 == 1
        delay = chance.uniform(0, within / 3 if late else within)
        where = f"kill {number + 1}, {delay:.3f} s after {'a sample' if late else 'the start'}"
        work.update(number / count, where)
        in_time = kill(run.command(), delay, signal.SIGKILL, run.measures if late else lambda: True)
        finish(command_of("drive", "restore"))
        _expect_nothing(where)
        counts["ended before" if not in_time else f"{run.added(where)} samples"] += 1
        if in_time and number + 1 < count:
            continue
        run.finish()
        run = _Run(home / f"{number + 2}", what, options, seed)
    return counts


class _Run:
    """A run of the matrix that is killed now and then."""

    def __init__(
        self, folder: Path, what: Sequence[str], options: Sequence[str | Path], seed: int
    ) -> None:
        self._folder = folder
        self._samples = SampleFile(folder / SAMPLES)
        self._before = self._samples.read()
        output = ("--output", folder, "--seed", str(seed))
        self._first = command_of("run-matrix", *what, *options, *output)
        self._resume = command_of("run-matrix", *options, "--resume", folder)

    def command(self) -> list[str]:
        """Return what begins or resumes it: a run is one once it has its manifest."""
        return self._resume if (self._folder / manifest.FILE).exists() else self._first

    def measures(self) -> bool:
        """Whether there is another sample than at the last kill."""
        return len(self._samples.read()) > len(self._before)

    def added(self, where: str) -> int:
        """Return how many samples came since the last call; LeftBehindError if one was lost."""
        before, self._before = self._before, self._samples.read()
        if self._before[: len(before)] != before:
            raise LeftBehindError(f"{where}: samples were lost")
        return len(self._before) - len(before)

    def finish(self) -> None:
        """Bring it to its end; LeftBehindError if a sample was lost or doubled."""
        finish(self.command())
        self.added("after the run")
        points = [(sample.round, tuple(sample.cell.items())) for sample in self._before]
        if len(points) != len(set(points)):
            raise LeftBehindError("a sample was measured twice")
        _expect_nothing("after the run")


def command_line(
    about: str, kills: int, work_through: Callable[[int, int, Work], Counter[str]]
) -> int:
    """Read --count and --seed, kill so many times, print what was found; return the exit code."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=kills, help="how many kills (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the moments; else random")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    try:
        with Work(f"{arguments.count} kills, seed {seed}") as work:
            counts = work_through(arguments.count, seed, work)
    except LeftBehindError as error:
        print(f"seed {seed}: {error}", file=sys.stderr)
        return 1
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for what, times in sorted(counts.items()):
        print(f"{times:5} {what}")
    print(f"{sum(counts.values())} kills, nothing left behind (seed {seed})")
    return 0
