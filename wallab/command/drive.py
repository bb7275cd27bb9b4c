"""scripts/drive: a simulated drive by hand."""

import contextlib
import re
import sys
from pathlib import Path

import click

from wallab import handdrive, jsonfile, ledger, simulated
from wallab.command import outcome
from wallab.errors import LabError, MachineError
from wallab.progress import say
from wallab.run import check_rights
from wallab.writecache import WRITE_CACHES, WriteCache

EPILOG = """\b
Examples:
  scripts/drive up --profile ata-2005 --write-cache off /mnt/x
  scripts/drive counters /mnt/x
  scripts/drive down /mnt/x
  scripts/drive restore
"""

DIRECTORY = click.argument("directory", type=click.Path(path_type=Path))


def bytes_of(size: str) -> int:
    """Read a size such as 512M or 2G; LabError if it is none."""
    found = re.fullmatch(r"(\d+)([MG])", size)
    if not found:
        raise LabError(f"--size {size}: expected a number with M or G, such as 2G")
    return int(found[1]) << {"M": 20, "G": 30}[found[2]]


@click.group(epilog=EPILOG)
def command() -> None:
    """Put a simulated drive under a directory, look at it, take it away."""


@command.command()
@DIRECTORY
@click.option("--profile", default="ata-2005", show_default=True, help="See drive/profiles/.")
@click.option("--size", default="2G", show_default=True)
@click.option(
    "--filesystem", default="xfs", show_default=True, type=click.Choice([*simulated.FILE_SYSTEMS])
)
@click.option(
    "--write-cache",
    default="off",
    show_default=True,
    type=click.Choice(WRITE_CACHES),
)
def up(directory: Path, profile: str, size: str, filesystem: str, write_cache: WriteCache) -> None:
    """Put an empty simulated drive under DIRECTORY; it stays until `down` or a reboot."""
    check_rights()
    drive = handdrive.up(directory, profile, bytes_of(size), filesystem, write_cache)
    print(f"{drive.mount_point}: {profile}, {filesystem}, write cache {write_cache}, {drive.loop}")


@command.command()
@DIRECTORY
def down(directory: Path) -> None:
    """Take the drive away, with everything on it."""
    handdrive.down(handdrive.find(directory))


@command.command()
def restore() -> None:
    """Undo what killed commands left: drives, and write caches of real drives."""
    done = ledger.clear_dead()
    for line in done:
        print(line)
    if not done:
        say("nothing was left behind")
    if remaining := ledger.dead():
        raise MachineError(f"not everything could be undone; {', '.join(map(str, remaining))}")


@command.command("list")
def list_() -> None:
    """List the drives that are up."""
    for drive in handdrive.every():
        print(f"{drive.mount_point}\t{drive.profile}\t{drive.filesystem}\t{drive.loop}")


@command.command()
@DIRECTORY
def counters(directory: Path) -> None:
    """Print the drive's state and counters as JSON."""
    with contextlib.closing(handdrive.control(handdrive.find(directory))) as drive:
        print(jsonfile.pretty({"state": drive.ask("state"), "counters": drive.reading()}))


@command.command()
@DIRECTORY
@click.argument("words", nargs=-1, required=True)
def tell(directory: Path, words: tuple[str, ...]) -> None:
    """Send the drive a command of its control protocol; drive/README.md lists them."""
    with contextlib.closing(handdrive.control(handdrive.find(directory))) as drive:
        print(jsonfile.pretty(drive.ask(" ".join(words))))


if __name__ == "__main__":
    sys.exit(outcome.run(command, "drive"))
