"""Root follows nothing in folders where the server's user can write: that user plants links there.

What a link leads to is root's alone: a file, or a folder, that must be as it was.
"""

import contextlib
import os
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from wallab.bench import templates
from wallab.bench.pgbench import Pgbench, RunFailed
from wallab.bench.runner import Runner
from wallab.bench.stage import Stage
from wallab.bench.workloads import files
from wallab.bench.workloads.sysbench import Sysbench
from wallab.bench.workloads.tpcc import KINDS, Tpcc
from wallab.command import psql
from wallab.drives.real import DirectoryDrive
from wallab.errors import MachineError
from wallab.machine import pagecache, process
from wallab.machine.confinement import Confinement
from wallab.machine.ledger import Ledger
from wallab.powercut import faultinjection
from wallab.powercut.load import LoadFailed
from wallab.record import series
from wallab.servers import builder, buildsystem, source
from wallab.servers.cluster import Cluster, ServerFailed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as another user")

REPORT = """\
number of transactions actually processed: 1
latency average = 1.0 ms
initial connection time = 1.0 ms
tps = 1.0 (without initial connection time)
"""
PRIVATE = "0 1 1000 0 1700000000 500000\nFATAL:  secret\n"
"""What root alone may read, a line of which looks like pgbench's."""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of root's that every user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def outside(home: Path) -> Iterator[Path]:
    """A folder of root's alone, with a file; both must be as they were in the end."""
    folder = home / "outside"
    folder.mkdir(mode=0o700)
    secret = folder / "000000010000000000000001"
    secret.write_text(PRIVATE)
    secret.chmod(0o600)
    yield folder
    assert list(folder.iterdir()) == [secret]
    assert secret.read_text() == PRIVATE
    for place, mode in ((folder, 0o700), (secret, 0o600)):
        state = place.stat()
        assert (state.st_uid, stat.S_IMODE(state.st_mode)) == (0, mode)


@pytest.fixture
def secret(outside: Path) -> Path:
    """The file in it."""
    return outside / "000000010000000000000001"


@pytest.fixture
def drive(home: Path) -> Path:
    """Where a drive is mounted: a folder of the server's user."""
    return theirs(home / "drive")


@pytest.fixture
def cluster(home: Path, drive: Path) -> Cluster:
    """A cluster that was never made, on the drive."""
    ledger = mock.Mock(folder=home / "ledger")
    ledger.folder.mkdir()
    return Cluster(drive / "data", drive / "wal", ledger, Confinement())


def theirs(folder: Path) -> Path:
    """Make a folder of the server's user."""
    folder.mkdir()
    process.own(folder)
    return folder


def run_as_server(*command: str | Path) -> bool:
    """Return whether the server's user can do that."""
    with process.started(command, as_server=True, stderr=subprocess.DEVNULL) as child:
        return child.wait() == 0


def plant(link: Path, target: Path) -> None:
    """Put the link there as the server's user, who must be able to."""
    assert run_as_server("ln", "-s", target, link)


def stage_of(drive: Path, cluster: Cluster, **further: Any) -> Stage:
    """Return as much of a stage as is looked at here."""
    conditions = SimpleNamespace(scale=1, source="18")
    drives = {"data": SimpleNamespace(mount_point=drive)}
    known: dict[str, Any] = {"conditions": conditions, "drives": drives, "cluster": cluster}
    known |= {"preset": mock.Mock(pace=1, files_mb=1), "server": Path("/nonexistent")}
    return Stage(**(known | further))


def failing_server(home: Path) -> Path:
    """Return an installed server that says why it does not start."""
    program = home / "server" / "bin" / "postgres"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho FATAL: broken\nexit 1\n")
    program.chmod(0o755)
    return program.parent.parent


def test_log(home: Path, cluster: Cluster, secret: Path) -> None:
    planted = run_as_server("ln", "-s", secret, cluster.log)
    with pytest.raises(ServerFailed, match="broken"):
        cluster.start(failing_server(home), {})
    assert not planted
    assert "secret" not in cluster.complaints()
    # Nor is it the server's to write to, once it is there.
    assert not run_as_server("rm", "-f", cluster.log)
    assert not run_as_server("truncate", "-s0", cluster.log)


def test_tpcc_scripts(drive: Path, cluster: Cluster, secret: Path) -> None:
    stage = stage_of(drive, cluster)
    arguments = Tpcc().script(stage)
    scripts = [Path(argument.split("@")[0]) for argument in arguments if "@" in argument]
    assert len(scripts) == len(KINDS)
    for script in scripts:
        assert run_as_server("grep", "-q", "tpcc", script)
        assert not run_as_server("ln", "-sf", secret, script)
    Tpcc().script(stage)


@pytest.mark.parametrize("what", ["link", "hard link", "FIFO", "folder"])
def test_transaction_log(home: Path, cluster: Cluster, secret: Path, what: str) -> None:
    report = theirs(home / "report") / "report"
    report.write_text(REPORT)
    child = process.spawn(
        ["cat", report], as_server=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    prefix = _prefix(cluster)
    log = prefix.with_name(f"{prefix.name}.{child.pid}")
    if what == "link":
        plant(log, secret)
    elif what == "hard link":  # as the user may, where fs.protected_hardlinks is off
        os.link(secret, log)
    else:
        assert run_as_server("mkfifo" if what == "FIFO" else "mkdir", log)
    with pytest.raises(RunFailed, match="no log of its transactions"):
        Pgbench.finish(child, prefix)


def _prefix(cluster: Cluster) -> Path:
    """Return where the runner has pgbench log its transactions."""
    stage = mock.Mock(cluster=cluster, seed=None, server=Path("/nonexistent"))
    stage.conditions = mock.Mock(cpus=None, clients=1, rate=None, think_ms=0)
    with (
        mock.patch.object(Pgbench, "start", side_effect=RunFailed("not to be run")) as start,
        contextlib.suppress(RunFailed),
    ):
        Runner(stage, mock.Mock()).pgbench(["-b", "select"], transactions=1, logged=True)
    (prefix,) = [
        argument for argument in start.call_args.args if argument.startswith("--log-prefix=")
    ]
    return Path(prefix.removeprefix("--log-prefix="))


@pytest.mark.parametrize("name", ["archive", "data", "wal"])
def test_folders_of_a_template(drive: Path, cluster: Cluster, outside: Path, name: str) -> None:
    plant(drive / name, outside)
    cluster.data, cluster.wal = drive / "data" / "18-1", drive / "wal" / "18-1"
    stage = stage_of(drive, cluster)
    with (
        mock.patch.object(Cluster, "create", side_effect=ServerFailed("enough")),
        pytest.raises(ServerFailed, match="enough"),
    ):
        templates.make(stage, "tpcb-like", {}, ())


def test_folder_for_files(drive: Path, cluster: Cluster, outside: Path) -> None:
    plant(drive / "files", outside)
    stage = stage_of(drive, cluster)
    runner = Runner(stage, mock.Mock())
    with (
        mock.patch.object(files, "program", return_value=Path("/bin/true")),
        pytest.raises(RunFailed, match=r"files: Permission denied"),
    ):
        Sysbench().prepare(stage, runner)


def test_folder_for_files_is_the_servers(drive: Path, cluster: Cluster) -> None:
    stage = stage_of(drive, cluster)
    runner = Runner(stage, mock.Mock())
    with mock.patch.object(files, "program", return_value=Path("/bin/true")):
        Sysbench().prepare(stage, runner)
    assert files.folder(stage).stat().st_uid == process.server_owner()
    printed, _ = runner.program(["pwd"], files.folder(stage))
    assert printed.strip() == str(files.folder(stage))


def test_reading_the_data(drive: Path, cluster: Cluster, outside: Path, secret: Path) -> None:
    base = theirs(theirs(cluster.data) / "base")
    assert run_as_server("dd", "if=/dev/zero", f"of={base / 'own'}", "bs=8k", "count=3")
    plant(base / "link", secret)
    plant(base / "folder", outside)
    assert run_as_server("mkfifo", base / "fifo")
    assert cluster.read_into_memory() == 3 * 8192
    assert run_as_server("rm", "-r", base)
    plant(base, outside)
    assert cluster.read_into_memory() == 0


def test_counting_segments(cluster: Cluster, outside: Path) -> None:
    theirs(cluster.wal)
    for name in ("0" * 23 + "1", "0" * 23 + "2", "archive_status"):
        assert run_as_server("touch", cluster.wal / name)
    assert cluster.segments() == 2
    assert run_as_server("rm", "-r", cluster.wal)
    plant(cluster.wal, outside)
    assert cluster.segments() == 0


def test_page_cache_of_the_archive(drive: Path, outside: Path, secret: Path) -> None:
    archive = theirs(drive / "archive")
    assert pagecache.resident(archive) == 0
    assert run_as_server("dd", "if=/dev/zero", f"of={archive / 'own'}", "bs=8k", "count=3")
    own = pagecache.resident(archive)
    assert own == 3 * 8192
    plant(archive / "link", secret)
    assert run_as_server("mkfifo", archive / "fifo")
    assert pagecache.resident(archive) == own
    assert run_as_server("rm", "-r", archive)
    plant(archive, outside)
    assert pagecache.resident(archive) == 0


def test_filling_the_drive(drive: Path, secret: Path) -> None:
    plant(drive / "filler", secret)
    situation = mock.Mock()
    situation.pair.wal.mount_point = drive
    with (
        mock.patch.object(os, "posix_fallocate", side_effect=OSError),
        pytest.raises(LoadFailed, match="filler"),
    ):
        faultinjection.full(cast("faultinjection.Situation", situation))


def test_socket_of_another(home: Path, cluster: Cluster) -> None:
    received: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "other"))
        listener.listen()
        listener.settimeout(10)
        plant(cluster.socket / ".s.PGSQL.5432", home / "other")

        def serve() -> None:
            with listener.accept()[0] as connection:
                received.append(connection.recv(100))

        thread = threading.Thread(target=serve)
        thread.start()
        (home / "other").chmod(0o777)
        with pytest.raises(Exception, match="requirepeer"), cluster.connect():
            pass
        thread.join()
    assert received == [b""]


def test_copies_of_a_drive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALLAB_RUNTIME", str(home / "run"))
    place = home / "place"
    place.mkdir()
    with contextlib.ExitStack() as undo:
        ledger = Ledger.open(lasting=True)
        undo.callback(ledger.close)
        drive = undo.enter_context(contextlib.closing(DirectoryDrive("wal", place, ledger)))
        drive.snapshot()
        # Who copies is not let in where a link in the place of a folder might lead.
        (drive.mount_point / "closed").mkdir(mode=0o700)
        with pytest.raises(MachineError, match="closed"):
            drive.snapshot()


def test_psql_runs_as_the_servers_user(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WALLAB_RUNTIME", str(home / "run"))
    program = failing_server(home).parent / "server" / "bin" / "psql"
    program.write_text("#!/bin/sh\nid -u\nid -G\n")
    program.chmod(0o755)
    built = mock.Mock(path=home / "server")
    making = mock.Mock()
    making.return_value.build.return_value = [built]
    monkeypatch.setattr(builder, "Builder", making)
    for module, names in (
        (source, ("resolve", "default")),
        (series, ("read",)),
        (buildsystem, ("choose",)),
        (psql, ("patches_of",)),
        (Cluster, ("create", "start", "stop")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, mock.Mock())
    with pytest.raises(SystemExit):
        psql.command(["stock"])
    user, groups = capfd.readouterr().out.split()
    assert int(user) == process.server_owner()
    assert int(groups) != 0
