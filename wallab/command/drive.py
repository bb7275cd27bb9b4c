"""scripts/drive: a simulated drive by hand."""

import contextlib
import csv
import re
import sys
import textwrap
from pathlib import Path

import click
import msgspec

from wallab.command import outcome
from wallab.command.options import AS_JSON
from wallab.drives import byhand as handdrive
from wallab.drives import trace as drivetrace
from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.machine import ledger, rights
from wallab.progress import say
from wallab.record import driveprofile
from wallab.record.filesystem import FILE_SYSTEMS
from wallab.record.writecache import WRITE_CACHES, WriteCache

EPILOG = """\b
Examples:
  scripts/drive profiles
  scripts/drive up --profile ata-2005 --write-cache off /mnt/x
  scripts/drive state /mnt/x
  scripts/drive cache /mnt/x on-unflushed
  scripts/drive trace /mnt/x /tmp/x.trace
  scripts/drive trace /mnt/x off
  scripts/drive explain /tmp/x.trace
  scripts/drive power-cut /mnt/x --writes 100 --within 50 --keep 0.3 --seed 7
  scripts/drive power-on /mnt/x
  scripts/drive down /mnt/x
  scripts/drive restore
"""

DIRECTORY = click.argument("directory", type=click.Path(path_type=Path))


def bytes_of(size: str) -> int:
    """Read a size such as 512M or 2G; LabError if it is none."""
    number = re.fullmatch(r"(\d+)([MG])", size)
    if not number:
        raise LabError(f"--size {size}: expected a number with M or G, such as 2G")
    return int(number[1]) << {"M": 20, "G": 30}[number[2]]


@click.group(epilog=EPILOG)
def command() -> None:
    """Put a simulated drive under a directory, look at it, take it away."""


@command.command()
@DIRECTORY
@click.option("--profile", default="ata-2005", show_default=True, help="See drive/profiles/.")
@click.option("--size", default="2G", show_default=True)
@click.option("--filesystem", default="xfs", show_default=True, type=click.Choice(FILE_SYSTEMS))
@click.option(
    "--write-cache",
    default="off",
    show_default=True,
    type=click.Choice(WRITE_CACHES),
)
def up(directory: Path, profile: str, size: str, filesystem: str, write_cache: WriteCache) -> None:
    """Put an empty simulated drive under DIRECTORY; it stays until `down` or a reboot."""
    rights.check()
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
@AS_JSON
def profiles(as_json: bool) -> None:
    """List the drives that can be simulated."""
    known = driveprofile.profiles()
    if as_json:
        print(jsonfile.pretty(known))
        return
    for name, about in known.items():
        print(textwrap.fill(about, 100, initial_indent=f"{name:15} ", subsequent_indent=" " * 16))


@command.command()
@DIRECTORY
@AS_JSON
def state(directory: Path, as_json: bool) -> None:
    """Print how the drive is switched."""
    drive = handdrive.find(directory)
    with contextlib.closing(handdrive.control(drive)) as connection:
        switches = connection.ask("state")
    if as_json:
        print(jsonfile.pretty(switches))
        return
    print(f"profile        {drive.profile}")
    for key in ("power", "timing", "write_cache", "flush_lies", "destage", "errors"):
        print(f"{key.replace('_', ' '):14} {switches[key]}")
    size, in_memory = switches["size"] >> 20, switches["base_bytes"] >> 20
    print(f"size           {size} MB, {in_memory} MB of it in memory")
    print(f"only in cache  {switches['dirty_bytes'] >> 10} kB")
    print(f"snapshot       {'yes' if switches['snapshot'] else 'none'}")


@command.command()
@DIRECTORY
@click.argument("mode", type=click.Choice(WRITE_CACHES))
def cache(directory: Path, mode: WriteCache) -> None:
    """Switch the drive's write cache, and tell the kernel."""
    state = handdrive.set_write_cache(handdrive.find(directory), mode)
    print(
        f"write cache {mode}: the drive's is {state['drive']}, the kernel is told {state['kernel']}"
    )


@command.command()
@DIRECTORY
@click.argument("name")
def profile(directory: Path, name: str) -> None:
    """Turn the drive into another one, with the same content."""
    print(f"{directory}: {handdrive.become(handdrive.find(directory), name).profile}")


@command.command()
@DIRECTORY
@click.argument("switch", type=click.Choice(["on", "off"]))
def timing(directory: Path, switch: str) -> None:
    """Let the drive take its time, or (for setting up) none."""
    with contextlib.closing(handdrive.control(handdrive.find(directory))) as drive:
        drive.ask(f"timing {switch}")


@command.command()
@DIRECTORY
def snapshot(directory: Path) -> None:
    """Keep the present content; nothing may use the directory."""
    handdrive.snapshot(handdrive.find(directory))


@command.command()
@DIRECTORY
def rollback(directory: Path) -> None:
    """Bring the content of the snapshot back; nothing may use the directory."""
    handdrive.restore(handdrive.find(directory))


@command.command()
@DIRECTORY
@click.argument("file", type=click.Path(path_type=Path))
def trace(directory: Path, file: Path) -> None:
    """Record every request in FILE (drive/TRACE.md) until FILE is “off”."""
    where = "off" if str(file) == "off" else file.absolute()
    with contextlib.closing(handdrive.control(handdrive.find(directory))) as drive:
        drive.ask(f"trace {where}")


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@AS_JSON
@click.option("--csv", "as_csv", is_flag=True, help="Print every request instead.")
def explain(file: Path, as_json: bool, as_csv: bool) -> None:
    """Sum up what `trace` recorded in FILE: requests, and what the heads did meanwhile."""
    recorded = drivetrace.read(file)
    if as_csv:
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerow(drivetrace.TracedRequest.__struct_fields__)
        for request in recorded.requests:
            *fields, flags = msgspec.structs.astuple(request)
            out.writerow([*fields, " ".join(flags)])
        return
    summary = drivetrace.summarize(recorded)
    if as_json:
        print(jsonfile.pretty(summary))
        return
    columns = ("requests", "merged", "cached", "FUA", "failed", "MB", "mean ms", "p99 ms", "max ms")
    print(f"{'':8}" + "".join(f"{name:>10}" for name in columns))
    for kind, of in summary.kinds.items():
        numbers = (of.requests, of.merged, of.cached, of.fua, of.failed)
        measures = (of.bytes / 1e6, of.mean_ms, of.p99_ms, of.max_ms)
        print(f"{kind:8}" + "".join(f"{number:10}" for number in numbers)
              + "".join(f"{measure:10.3f}" for measure in measures))  # fmt: skip
    print(f"in {summary.seconds:.3f} s the heads waited {summary.head_waited_s:.3f} s for sectors, "
          f"moved {summary.head_moved_s:.3f} s, transferred "
          f"{summary.head_transferred_s:.3f} s")  # fmt: skip
    print(f"revolutions waited: {summary.revolutions_waited:.1f}, "
          f"{summary.revolutions_per_write:.2f} a write")  # fmt: skip


@command.command("power-cut")
@DIRECTORY
@click.option("--writes", type=click.IntRange(1), help="After so many more writes.")
@click.option("--flushes", type=click.IntRange(1), help="After so many more flushes.")
@click.option("--within", type=click.IntRange(1), help="At a random moment of so many ms.")
@click.option("--keep", type=click.FloatRange(0, 1), help="Share of the cache that is written.")
@click.option("--keep-first", type=click.IntRange(0), help="So many of the oldest pieces are, too.")
@click.option("--seed", type=click.IntRange(0), help="Of the moment and of the share.")
@click.option("--patience", default=60.0, show_default=True, help="Wait so long (s) for it.")
@AS_JSON
def power_cut(directory: Path, patience: float, as_json: bool, **plan: float | None) -> None:
    """Cut the drive's power, and print what that took.

    Everything fails from then on, until `power-on`.
    """
    options: dict[str, float | str] = {
        key.replace("_", "-"): value for key, value in plan.items() if value is not None
    }
    if "keep" in options:
        options["keep"] = f"{options['keep']:.9f}"  # never as 1e-05
    words = " ".join(f"{key}={value}" for key, value in options.items())
    cut = handdrive.power_off(handdrive.find(directory), words, patience)
    if as_json:
        print(jsonfile.pretty(cut))
        return
    print(f"the power is off; requests that failed with it: {cut['failed']}")
    print(f"sectors that only the cache had: {cut['lost_sectors']} lost, "
          f"{cut['kept_sectors']} kept")  # fmt: skip


@command.command("power-on")
@DIRECTORY
def power_on(directory: Path) -> None:
    """Switch the power on, and mount the file system again; it replays its journal."""
    handdrive.power_on(handdrive.find(directory))


@command.command()
@DIRECTORY
@click.argument("words", nargs=-1, required=True)
def tell(directory: Path, words: tuple[str, ...]) -> None:
    """Send the drive a command of its control protocol; drive/README.md lists them."""
    with contextlib.closing(handdrive.control(handdrive.find(directory))) as drive:
        print(jsonfile.pretty(drive.ask(" ".join(words))))


if __name__ == "__main__":
    sys.exit(outcome.run(command, "drive"))
