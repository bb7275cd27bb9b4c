"""The container's first process: `docker run IMAGE [COMMAND …]` runs one of the lab's commands."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from wallab import paths
from wallab.machine import container
from wallab.servers import prebuilt

COMMANDS = ("run-matrix", "build-variant", "reproduce", "tabulate", "power-cut", "drive", "test")
INTERACTIVE = ("bash", "sh")


def command_line(arguments: list[str]) -> list[str] | None:
    """Return what is to be run; None if it is no command of the image."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("run-matrix", [])
    script = paths.LAB / "scripts" / name
    if name in COMMANDS and script.exists():
        return [str(script), *rest]
    if name == "psql":
        return [sys.executable, "-m", "wallab.command.psql", *rest]
    if name in INTERACTIVE:
        return [name, *rest]
    return None


def hand_results_over() -> None:
    """Give what is in the results folder to the folder's owner, the caller of `docker run`."""
    with contextlib.suppress(OSError):
        owner = paths.RESULTS.stat()
        for folder, folders, files in os.walk(paths.RESULTS):
            for name in [*folders, *files]:
                os.chown(Path(folder) / name, owner.st_uid, owner.st_gid, follow_symlinks=False)


def run(command: list[str]) -> int:
    """Run the command as the container's init would, and return its exit code.

    Signals go on to it, and orphans are fetched, since this is process 1.
    """
    child = subprocess.Popen(command)

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    if os.getpid() != 1:
        return child.wait()
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode


def main() -> int:
    """Run the named command, run-matrix if none is named."""
    arguments = sys.argv[1:]
    command = command_line(arguments)
    if command is None:
        known = ", ".join((*COMMANDS, "psql", *INTERACTIVE))
        print(f"no command “{arguments[0]}” in this image; there are {known}", file=sys.stderr)
        return 2
    if arguments[:1] == ["test"] and container.image() == "lab":
        refusal = prebuilt.refuse_to_test()
        print(refusal, file=sys.stderr)
        return refusal.exit_code
    if arguments and arguments[0] in INTERACTIVE:
        os.execvp(command[0], command)  # noqa: S606 - the shell needs the terminal for itself
    try:
        code = run(command)
    finally:
        hand_results_over()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
