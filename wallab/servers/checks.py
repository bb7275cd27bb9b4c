"""Run a tree's own tests on a variant: on the very server that gets measured.

What the tests need is copied to a folder of their own; there they run in a sandbox, some at a time,
as the user that built the variant, and there everything of theirs stays.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path, PurePosixPath

from wallab.errors import LabError, MachineError
from wallab.files import foreign
from wallab.files.foreign import Refused
from wallab.files.timestamp import utc
from wallab.machine import sandbox, scratch
from wallab.machine.ledger import Ledger
from wallab.machine.sandbox import Sandbox
from wallab.progress import Work
from wallab.servers import checkresult, cluster, suite
from wallab.servers.builder import Builder, Server
from wallab.servers.checkresult import Check
from wallab.servers.jobrunner import JobRunner
from wallab.servers.patches import Patch
from wallab.servers.workshop import Workshop

LONGEST_SCRATCH = 50
"""Characters of the folder's path: the tests' sockets lie below it, and 107 are allowed."""


def check(builder: Builder, server: Server, patches: list[Patch], suites: tuple[str, ...]) -> Check:
    """Run the suites on the server, keep results and logs beside those of its other suites.

    Return the results of these suites alone. LabError for a suite that the tree lacks,
    MachineError where the tests cannot run.
    """
    started = utc()
    begun = time.monotonic()
    guest = not builder.trusts(patches)
    ledger = Ledger.open(lasting=True)  # its folder, in /var/tmp, survives a reboot
    try:
        place = _scratch(ledger, guest=guest)
        kit, logs = place / "kit", place / "logs"
        _fill(kit, builder, server, patches, suites)
        logs.mkdir()
        limits = sandbox.default_limits(len(os.sched_getaffinity(0)))
        with Sandbox(kit, guest=guest, limits=limits) as box:
            methods = _methods(box, kit / "server")
            jobs = [job for name in suites for job in suite.jobs_of(name, kit / "tree", methods)]
            title = f"checking {server.build.variant} of PostgreSQL {server.build.version}"
            with Work(title) as work:
                tests = JobRunner(box, logs, jobs, work).run()
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
        checkresult.keep(logs, result, checkresult.folder_of(server))
        return result
    except Refused as error:
        raise LabError(f"checking {server.build.variant}: its tree has {error}") from None
    except OSError as error:
        raise MachineError(f"checking {server.build.variant}: {error}") from None
    finally:
        ledger.close()


def _scratch(ledger: Ledger, *, guest: bool) -> Path:
    """Make the folder; MachineError where the tests' user could not reach it."""
    base = Path(os.environ.get("TMPDIR", "/var/tmp")).absolute()  # noqa: S108 - too much for /tmp
    planned = scratch.named(base, f"wal-lab-{os.getpid()}")
    folder = planned.path
    user = sandbox.user(guest=guest)
    if user and sandbox.kind(guest=guest) != "bwrap":
        for parent in folder.parents:
            if not parent.stat().st_mode & 0o001:
                raise MachineError(
                    f"the tests run as {user}, who may not pass {parent}: set TMPDIR to a folder "
                    "that everybody can reach"
                )
    if len(str(folder)) > LONGEST_SCRATCH:
        raise MachineError(
            f"{folder} is too long a path for the tests' sockets: set TMPDIR to one of at most "
            f"{LONGEST_SCRATCH - len(folder.name) - 1} characters"
        )
    return ledger.make(planned).path


def _fill(
    kit: Path, builder: Builder, server: Server, patches: list[Patch], suites: tuple[str, ...]
) -> None:
    """Copy the server and what its tests need to the folder; theirs to write are parts of it."""
    kit.mkdir(mode=0o755)
    folders = {suite.FOLDERS["recovery"], suite.FOLDERS["regress"], "src/test/perl"}
    folders |= {suite.folder_of(name) for name in suites if name != suite.METHODS}
    for folder in folders:
        if {"..", "/"} & set(PurePosixPath(folder).parts):
            raise LabError(f"--suite {folder}: leads out of the tree")

    def copy(shop: Workshop) -> None:
        for folder in folders:
            if (shop.folder / "src" / folder).is_dir():
                target = kit / "tree" / folder
                target.parent.mkdir(parents=True, exist_ok=True)
                foreign.copy(shop.folder, f"src/{folder}", target, shop.owner)
        (kit / "programs").mkdir()
        for program in suite.PROGRAMS:
            target = kit / "programs" / Path(program).name
            foreign.copy_file(shop.folder, f"build/{program}", target, shop.owner)

    builder.with_tree(server.build.variant, patches, copy)
    shutil.copytree(server.path, kit / "server", symlinks=True)
    (kit / "run").mkdir()
    owner = sandbox.owner(guest=not builder.trusts(patches))
    for name in ("shared", "tmp", "template"):
        (kit / name).mkdir()
        os.chown(kit / name, owner, -1)


def _methods(box: Sandbox, server: Path) -> tuple[str, ...]:
    """Ask the server which values of wal_sync_method it has."""
    words = b""
    try:
        for line in box.lines(cluster.asking_methods(server)):
            words += line
    except subprocess.CalledProcessError:
        pass  # it fails, and tells them
    return cluster.methods_told(server, words.decode(errors="replace"))
