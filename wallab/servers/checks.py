"""Run a tree's own tests on a variant: on the very server that gets measured.

What the tests need is copied to a folder of their own, which the user that servers run as can
reach; there the tests run as that user, some at a time, and there everything of theirs stays.
"""

import os
import shutil
import time
from pathlib import Path

from wallab.errors import LabError, MachineError
from wallab.files.timestamp import utc
from wallab.machine import process, scratch
from wallab.machine.ledger import Ledger
from wallab.progress import Work
from wallab.servers import checkresult, cluster, suite
from wallab.servers.builder import Builder, Server
from wallab.servers.checkresult import Check
from wallab.servers.jobrunner import JobRunner
from wallab.servers.patches import Patch

LONGEST_SCRATCH = 50
"""Characters of the folder's path: the tests' sockets lie below it, and 107 are allowed."""


def check(builder: Builder, server: Server, patches: list[Patch], suites: tuple[str, ...]) -> Check:
    """Run the suites on the server, keep results and logs beside those of its other suites.

    Return the results of these suites alone. LabError for a suite that the tree lacks,
    MachineError where the tests cannot run.
    """
    started = utc()
    begun = time.monotonic()
    ledger = Ledger.open(lasting=True)  # its folder, in /var/tmp, survives a reboot
    try:
        kit = _kit(builder, server, patches, suites, ledger)
        methods = cluster.methods(kit / "server")
        jobs = [job for one in suites for job in suite.jobs_of(one, kit / "tree", methods)]
        title = f"checking {server.build.variant} of PostgreSQL {server.build.version}"
        with Work(title) as work:
            tests = JobRunner(kit, jobs, work).run()
        result = Check(
            server.build.variant,
            server.build.version,
            server.build.build_system,
            server.build.patches,
            server.build.key,
            started,
            round(time.monotonic() - begun, 1),
            len(os.sched_getaffinity(0)),
            methods,
            tuple(tests),
        )
        checkresult.keep(kit / "logs", result, checkresult.folder_of(server))
        return result
    except OSError as error:
        raise MachineError(f"checking {server.build.variant}: {error}") from None
    finally:
        ledger.close()


def _scratch(ledger: Ledger) -> Path:
    """Make the folder, which the tests' user owns; MachineError where it could not reach it."""
    base = Path(os.environ.get("TMPDIR", "/var/tmp")).absolute()  # noqa: S108 - too much for /tmp
    planned = scratch.named(base, f"wal-lab-{os.getpid()}")
    folder = planned.path
    if process.server_user():
        for parent in folder.parents:
            if not parent.stat().st_mode & 0o001:
                raise MachineError(
                    f"the tests run as {process.server_user()}, who may not pass {parent}: set "
                    "TMPDIR to a folder that everybody can reach"
                )
    if len(str(folder)) > LONGEST_SCRATCH:
        raise MachineError(
            f"{folder} is too long a path for the tests' sockets: set TMPDIR to one of at most "
            f"{LONGEST_SCRATCH - len(folder.name) - 1} characters"
        )
    return ledger.make(planned).path


def _kit(
    builder: Builder,
    server: Server,
    patches: list[Patch],
    suites: tuple[str, ...],
    ledger: Ledger,
) -> Path:
    """Copy the server and what its tests need to a folder of their own, and return that."""
    kit = _scratch(ledger)
    folders = {suite.FOLDERS["recovery"], suite.FOLDERS["regress"], "src/test/perl"}
    folders |= {suite.folder_of(one) for one in suites if one != suite.METHODS}

    def copy(source: Path, build: Path) -> None:
        for folder in folders:
            if not (source / folder).resolve().is_relative_to(source.resolve()):
                raise LabError(f"--suite {folder}: leads out of the tree")
            if (source / folder).is_dir():
                shutil.copytree(source / folder, kit / "tree" / folder, symlinks=True)
        for program in suite.PROGRAMS:
            (kit / "programs").mkdir(exist_ok=True)
            shutil.copy2(build / program, kit / "programs")

    builder.with_tree(server.build.variant, patches, copy)
    shutil.copytree(server.path, kit / "server", symlinks=True)
    for folder in ("run", "logs", "tmp"):
        (kit / folder).mkdir()
    for path in (kit, *kit.rglob("*")):
        if not path.is_symlink():
            process.own(path)
    return kit
