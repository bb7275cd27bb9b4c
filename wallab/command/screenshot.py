"""scripts/screenshot: a picture of a run's report, taken by a headless Chromium."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from wallab.command import outcome
from wallab.errors import LabError, MachineError
from wallab.machine import process
from wallab.progress import say
from wallab.record import manifest
from wallab.results import tabulation

EPILOG = """\b
Examples:
  scripts/screenshot latest report.png
  scripts/screenshot results/example-quick docs/report.png --height 1180
"""

FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium's own needs another user than root
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
)
PATIENCE = 120.0
"""Seconds that taking the picture may last."""


def take(page: Path, picture: Path, width: int, height: int) -> None:
    """Write the upper left part of the page as PNG; MachineError if Chromium cannot do it."""
    program = shutil.which("chromium")
    if program is None:
        raise MachineError("there is no chromium; on Debian, scripts/setup browser installs it")
    with tempfile.TemporaryDirectory(prefix="wal-lab-") as home:
        taken = Path(home) / "picture.png"
        command = [
            program,
            *FLAGS,
            f"--user-data-dir={home}/profile",
            f"--window-size={width},{height}",
            f"--screenshot={taken}",
            page.as_uri(),
        ]
        with process.started(
            command,
            environment={"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as child:
            try:
                _, messages = child.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                raise MachineError(f"chromium took no picture in {PATIENCE:.0f} s") from None
        if not taken.exists():
            last = messages.decode(errors="replace").strip()[-500:]
            raise MachineError(f"chromium took no picture: {last}")
        shutil.copyfile(taken, picture)


@click.command(epilog=EPILOG)
@click.argument("run_name", metavar="RUN")
@click.argument("picture", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--width", type=click.IntRange(320, 4000), default=1180, show_default=True)
@click.option("--height", type=click.IntRange(200, 20000), default=1100, show_default=True)
def command(run_name: str, picture: Path, width: int, height: int) -> None:
    """Write a picture of the top of RUN's report to PICTURE, as PNG."""
    if not picture.absolute().parent.is_dir():
        raise LabError(f"{picture}: there is no directory {picture.absolute().parent}")
    results = tabulation.results_of(manifest.find(run_name))
    with tempfile.TemporaryDirectory(prefix="wal-lab-") as folder:
        page = Path(folder) / "report.html"
        page.write_text(tabulation.render(results, "html"))
        take(page, picture, width, height)
    say(f"picture: {picture}")


if __name__ == "__main__":
    sys.exit(outcome.run(command, "screenshot"))
