"""scripts/reproduce: measure samples of a virtual run again, and compare bytes."""

import sys
from pathlib import Path

import click
import msgspec

from wallab.command import options, outcome
from wallab.errors import LabError, MachineError
from wallab.machine import checkout, provision
from wallab.paths import DIRECT_CP, DRIVE
from wallab.progress import say
from wallab.record import manifest as manifests
from wallab.record.manifest import Manifest
from wallab.servers import labtree
from wallab.virtual import reproduction
from wallab.virtual.reproduction import Difference, Line, Reproduction

SAMPLES = 3

EPILOG = """\b
Examples:
  scripts/reproduce latest                            three of its samples
  scripts/reproduce results/example-virtual --samples 10 --jobs 2
"""


def go_to_its_lab(manifest: Manifest, folder: Path, arguments: list[str]) -> None:
    """Go on as the lab that measured the run; return where that is this one.

    MachineError where that lab is not to be had.
    """
    lab = manifest.lab
    commit, same = lab.get("commit", ""), lab.get("files") == checkout.files()
    if labtree.is_known(commit):
        if same and (lab.get("changed") == "yes" or labtree.is_here(commit)):
            return
        if lab.get("changed") != "yes":
            say(f"as the lab of commit {commit[:12]}, in a work tree of it")
            builds = manifest.builds.values()
            here = ("--here", str(folder.absolute()))
            labtree.run(commit, "wallab.command.reproduce", *here, *arguments, builds=builds)
    if not same:
        unknown = "had changes that no commit has" if lab.get("changed") == "yes" else "is unknown"
        raise MachineError(
            f"the lab of the run, commit {commit or 'unknown'}, {unknown} here; git fetch may help"
        )


def compile_programs() -> None:
    """Compile the lab's own programs, unless that has been done."""
    provision.have_program(DRIVE, provision.drive_program())
    provision.have_program(DIRECT_CP, provision.copy_program())


def show(line: Line, difference: Difference | None) -> None:
    """Print how a sample compares."""
    if difference is None:
        print(f"{line.name}: the same {len(line.text)} bytes")
    else:
        print(
            f"{line.name}: {difference.field}: {difference.run} in the run, {difference.here} here"
        )
    sys.stdout.flush()


@click.command(epilog=EPILOG)
@click.argument("run_name", metavar="RUN")
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=SAMPLES,
    show_default=True,
    help="How many, spread evenly over the run.",
)
@click.option("--jobs", type=click.IntRange(1), help="Samples at a time.")
@click.option("--here", is_flag=True, hidden=True, help="By this lab, whatever its commit is.")
@options.AS_JSON
def command(run_name: str, samples: int, jobs: int | None, *, here: bool, as_json: bool) -> int:
    """Measure samples of RUN, of a virtual machine, again, and compare them byte for byte.

    Exit 1 with the first difference; 3 where an input, such as the kernel or a compiler, is not
    the same here.
    """
    folder = manifests.find(run_name)
    manifest = manifests.load(folder)
    if manifest.virtual is None:
        raise LabError(f"{folder}: measured in real time, which nobody can measure again")
    lines = reproduction.chosen(folder, samples)
    if not here:
        arguments = ["--samples", str(samples), *(["--jobs", str(jobs)] if jobs else [])]
        go_to_its_lab(manifest, folder, [*arguments, *(["--json"] if as_json else [])])
    compile_programs()
    same: list[int] = []
    difference: Difference | None = None
    for line, difference in Reproduction(manifest, lines, jobs).differences():
        if not as_json:
            show(line, difference)
        if difference:
            break
        same.append(line.number)
    if as_json:
        different = (
            {"sample": line.number, **msgspec.to_builtins(difference)} if difference else None
        )
        print(msgspec.json.encode({"same": same, "different": different}).decode())
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(outcome.run(command, "reproduce"))
