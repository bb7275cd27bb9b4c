"""What a stranger's server, and the programs that come with it, can harm: their own files.

The server is a real one, and its superuser has it run programs, which is all that code in it could
do. The programs are a shell script that tries the same.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import psutil
import psycopg
import pytest
import reachable

from wallab import paths
from wallab.bench.pgbench import Pgbench
from wallab.bench.realbed import archive_settings
from wallab.drives.simulated import SimulatedDrive
from wallab.errors import LabError, MachineError
from wallab.machine import mounts, process, sandbox, serversandbox
from wallab.machine.confinement import Confinement, Places
from wallab.machine.ledger import Ledger
from wallab.machine.memorygroup import MemoryGroup
from wallab.powercut import inspection
from wallab.servers import builder, buildsystem
from wallab.servers import cluster as clusters
from wallab.servers.cluster import Cluster, ServerFailed
from wallab.servers.source import Source
from wallab.virtual import rootfs

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as another user")
KEPT = "what another cluster keeps"
DONE = "this was possible:"
MARK = "613.5"
"""Seconds that a process of somebody else's sleeps, to be known by."""


class Outside:
    """What is there for a stranger's program to harm, and how to try."""

    def __init__(self, home: Path, port: int, victim: int) -> None:
        self.home = home
        self.data = home / "other" / "data"
        self.common = Path(tempfile.gettempdir()) / f"{home.name}-tmp"
        """A name in a folder where everybody may write."""
        self._port = port
        self._victim = victim

    def attack(self) -> str:
        """Return a line for a shell that tries everything; it prints how far it gets."""
        other = self.data
        did = f"echo {DONE[:4]}''{DONE[4:]}"  # which is seen among the processes, too
        return (
            f"(echo broken >{other}/base) && {did} wrote another cluster; "
            f"(echo broken >{other}/new) && {did} wrote beside it; "
            f"cat {other}/base; touch {self.common}; "
            f'bash -c "exec 3<>/dev/tcp/127.0.0.1/{self._port}" && {did} reached the network; '
            f"kill -9 {self._victim} && {did} sent a signal; "
            f"cat /proc/*/cmdline | tr '\\000' ' '; "
            f"ls {paths.LAB} {Path.home()} {other.parent} && {did} saw files; "
            f"touch /usr/broken && {did} wrote programs"
        )


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user can reach, for all that the lab makes while it is at work."""
    monkeypatch.delenv(sandbox.SETTING, raising=False)
    if reason := sandbox.refused():
        pytest.skip(f"no bubblewrap here: {reason}")
    with reachable.folder("wal-lab-hostile-") as folder:
        monkeypatch.setenv("WALLAB_RUNTIME", str(folder / "run"))
        yield folder


@pytest.fixture
def outside(home: Path) -> Iterator[Outside]:
    """Another cluster of the same user's, a port, and a process; all must be as they were."""
    other = home / "other" / "data"
    other.mkdir(parents=True)
    (other / "base").write_text(KEPT)
    for place in (other.parent, other, other / "base"):
        process.own(place)
        place.chmod(0o700)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        process.started(["sleep", MARK], as_server=True) as victim,
    ):
        listener.setblocking(False)
        made = Outside(home, listener.getsockname()[1], victim.pid)
        yield made
        assert victim.poll() is None, "a signal came through"
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (other / "base").read_text() == KEPT
    assert [path.name for path in other.iterdir()] == ["base"]
    written = made.common.exists()
    made.common.unlink(missing_ok=True)
    assert not written


def check_words(words: str) -> None:
    """Look at what an attack printed: it must have been run, and got nowhere."""
    assert "cannot" in words or "No such file" in words, words
    for what in (KEPT, MARK, DONE):
        assert what not in words, words


@pytest.fixture
def ledger(home: Path) -> Iterator[Ledger]:
    """What the lab owns."""
    assert home
    owned = Ledger.open()
    try:
        yield owned
    finally:
        owned.close()


def cluster_of(ledger: Ledger, name: str = "own", **further: object) -> Cluster:
    """Return a cluster with a folder of its own, not yet made."""
    home = ledger.folder / name
    home.mkdir()
    process.own(home)
    confinement = serversandbox.confinement(guest=True)
    return Cluster(home / "data", home / "wal", ledger, confinement, **further)  # type: ignore[arg-type]


@pytest.fixture
def stock(source18: Source) -> Path:
    """An installed server."""
    system = buildsystem.choose("auto", source18)
    (server,) = builder.Builder(source18, system).build({"stock": []})
    return server.path


@pytest.fixture
def cluster(ledger: Ledger, stock: Path) -> Iterator[Cluster]:
    """A cluster whose server runs."""
    made = cluster_of(ledger)
    made.create(stock)
    try:
        made.start(stock, {"fsync": "off"})
        yield made
    finally:
        made.stop(signal.SIGQUIT)


def run_inside(cluster: Cluster, command: str) -> str:
    """Have the server run a shell's command; return what it printed."""
    with cluster.connect() as connection:
        connection.execute("CREATE TEMPORARY TABLE said (line text)")
        as_they_are = "DELIMITER E'\\x01', QUOTE E'\\x02'"
        program = f"$program$({command}) 2>&1; true$program$"
        connection.execute(f"COPY said FROM PROGRAM {program} (FORMAT csv, {as_they_are})".encode())
        rows = connection.execute("SELECT line FROM said").fetchall()
    return "\n".join(line or "" for (line,) in rows)


@pytest.mark.stack
def test_server_at_work(cluster: Cluster, outside: Outside) -> None:
    check_words(run_inside(cluster, outside.attack()))
    seen = run_inside(cluster, "echo /proc/[0-9]*").split()
    assert max(int(Path(place).name) for place in seen) < 100
    assert run_inside(cluster, "id -u") == str(process.server_owner())
    assert run_inside(cluster, "cat /proc/net/dev | tail -n +3 | cut -d: -f1").split() == ["lo"]
    limit = run_inside(cluster, "prlimit --nproc --output SOFT --noheadings")
    assert int(limit) == serversandbox.PROCESSES
    # No right is left, nor can one be had by a set-user-ID program.
    assert set(re.findall(r"Cap\w+:\s*(\w+)", run_inside(cluster, "cat /proc/self/status"))) == {
        "0" * 16
    }
    assert "NoNewPrivs:\t1" in run_inside(cluster, "cat /proc/self/status")


@pytest.mark.stack
def test_what_a_server_has(ledger: Ledger, stock: Path) -> None:
    """Its data, its WAL, its socket, its archive and its archiver: no more of the lab's folder."""
    archive = ledger.folder / "own" / "archive"
    copier = ledger.folder / "direct_cp"
    copier.write_bytes(Path("/bin/cp").read_bytes())
    copier.chmod(0o755)
    cluster = cluster_of(ledger, beside=Places((archive,), (copier,)))
    # As from a drive: data/NAME and archive side by side.
    cluster.data = ledger.folder / "own" / "data" / "18"
    cluster.create(stock)
    settings = archive_settings("direct_cp", copier)
    try:
        cluster.start(stock, {"fsync": "off"} | settings)
        with cluster.connect() as connection:
            connection.execute("SELECT pg_switch_wal()")
            done = None
            while done is None or done == (0, 0):
                connection.execute("SELECT pg_sleep(0.1)")
                done = connection.execute(
                    "SELECT archived_count, failed_count FROM pg_stat_archiver"
                ).fetchone()
        assert done == (1, 0), cluster.complaints()
        names = run_inside(cluster, f"ls {ledger.folder}").split()
        assert names == ["direct_cp", "own", "socket"]
        wrote = run_inside(cluster, f"touch {copier} {cluster.log} {cluster.clients}/x")
        assert wrote.count("cannot touch") == 3
    finally:
        cluster.stop(signal.SIGQUIT)
    assert len(list(archive.iterdir())) == 1


@pytest.fixture
def tree(home: Path, outside: Outside) -> Path:
    """An installed tree whose programs try everything, and fail."""
    programs = home / "server" / "bin"
    programs.mkdir(parents=True)
    names = ("initdb", "postgres", "pgbench", "pg_amcheck", "pg_checksums", "pg_waldump", "psql")
    for name in names:
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec >&2\necho "$0"\n{outside.attack()}\nexit 1\n')
        program.chmod(0o755)
    return programs.parent


ATTEMPTS: dict[str, Callable[[Path, Cluster], object]] = {
    "initdb": lambda tree, cluster: cluster.create(tree),
    "postgres": lambda tree, cluster: cluster.start(tree, {}),
    "postgres -C": lambda tree, cluster: clusters.methods(tree, cluster.confinement),
    "pgbench -i": lambda tree, cluster: Pgbench(tree, cluster).load(1),
    "pg_amcheck": inspection.check_running,
    "pg_checksums": lambda tree, cluster: inspection.check_stopped(tree, cluster, []),
}


@needs_root
@pytest.mark.parametrize("name", ATTEMPTS)
def test_programs_of_a_tree(ledger: Ledger, tree: Path, name: str) -> None:
    messages: list[str] = []
    cluster = cluster_of(ledger)
    for folder in (cluster.data, cluster.wal):
        process.make_folders(folder)
    with _keep_words(messages), pytest.raises((LabError, inspection.Damage)):
        ATTEMPTS[name](tree, cluster)
    cluster.stop(signal.SIGQUIT)
    words = "\n".join([*messages, cluster.log.read_text() if cluster.log.exists() else ""])
    assert f"bin/{name.split(maxsplit=1)[0]}" in words
    check_words(words)


@contextlib.contextmanager
def _keep_words(words: list[str]) -> Iterator[None]:
    """Keep what programs print, of which messages have the end alone."""
    communicate = subprocess.Popen.communicate

    def keep(
        self: subprocess.Popen[bytes], input: bytes | None = None, timeout: float | None = None
    ) -> tuple[bytes, bytes]:
        answers = communicate(self, input, timeout)
        words.extend(str(answer) for answer in answers)
        return answers

    with mock.patch.object(subprocess.Popen, "communicate", keep):
        yield


@needs_root
def test_has_setting_and_can_run(home: Path, tree: Path) -> None:
    confinement = serversandbox.confinement(guest=True)
    assert home
    clusters.has_setting(tree, "fsync", "off", confinement)
    assert not confinement.can_run(tree)


@needs_root
def test_clients_see_no_cluster(ledger: Ledger, home: Path) -> None:
    """Clients have their own folder and the server's socket, not its files."""
    program = home / "server" / "bin" / "pgbench"
    program.parent.mkdir(parents=True)
    cluster = cluster_of(ledger)
    process.make_folders(cluster.data, cluster.wal)
    program.write_text(
        f"#!/bin/sh\ntouch {cluster.clients}/mine\n"
        f"touch {cluster.socket}/x {cluster.log.parent}/x\nls {cluster.data}\n"
        "echo done >&2; exec sleep 600"
    )
    program.chmod(0o755)
    child = Pgbench(home / "server", cluster).start()
    stream = child.stderr
    assert stream is not None
    try:
        words = list(iter(lambda: stream.readline().decode().strip(), "done"))
    finally:
        cluster.confinement.end(child)
    assert [word.rpartition(": ")[2] for word in words] == [
        "Read-only file system", "Read-only file system", "No such file or directory",
    ]  # fmt: skip
    assert [path.name for path in cluster.clients.iterdir()] == ["mine"]


@needs_root
def test_image_of_a_server_for_the_virtual_machine(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks for its libraries is the loader, which begins with a library of its choice."""
    tree = home / "server"
    for name in ("bin", "lib", "share"):
        (tree / name).mkdir(parents=True)
    (tree / "proof").mkdir()
    (tree / "proof").chmod(0o777)
    audit = tree / "lib" / "audit.so"
    source = (
        "#include <fcntl.h>\n"
        f'unsigned la_version(unsigned v) {{ creat("{tree}/proof/ran", 0644); return v; }}\n'
    )
    compiler = ["cc", "-xc", "-", "-o"]
    calls: tuple[tuple[str, list[str | Path]], ...] = (
        (source, [audit, "-shared", "-fPIC"]),
        ("int main(void) { return 0; }", [tree / "bin" / "postgres", f"-Wl,--audit={audit}"]),
    )
    for text, options in calls:
        subprocess.run([*compiler, *options], input=text.encode(), check=True)
    for name in ("initdb", "pgbench", "psql"):
        (tree / "bin" / name).write_bytes((tree / "bin" / "postgres").read_bytes())
        (tree / "bin" / name).chmod(0o755)
    monkeypatch.setenv("WALLAB_CACHE", str(home / "cache"))
    image = rootfs.server(tree)
    assert image.path.stat().st_size > 0
    assert list((tree / "proof").iterdir()) == []


# --- how it ends ----------------------------------------------------------------------------


def is_free(drive: SimulatedDrive) -> bool:
    """Whether the drive's device is in use by no file system, in whatever namespace."""
    try:
        os.close(os.open(drive.loop.path, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return False
    return True


def on_a_drive(work: Callable[[Ledger, SimulatedDrive], None]) -> None:
    """Do it in another process, whose mounts are its own: other labs here copy what they see."""

    def begin() -> None:
        mounts.enter_private_namespace()
        owned = Ledger.open()
        try:
            drive = SimulatedDrive("data", "ata-2005", 256 << 20, "ext4", owned)
            with contextlib.closing(drive):
                drive.mount()
                work(owned, drive)
        finally:
            owned.close()

    child = multiprocessing.get_context("fork").Process(target=begin)
    child.start()
    child.join()
    assert child.exitcode == 0


DAEMON = (
    'setsid sh -c \'trap "" HUP INT QUIT TERM; exec >held; echo $$ >daemon; '
    "while :; do sleep 1; done' </dev/null 2>/dev/null & "
    "while ! [ -s daemon ]; do sleep 0.1; done"
)
"""Starts a process that goes on by itself in the data directory, deaf to signals."""


@pytest.mark.stack
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("how", ["fast", "immediate", "killed before"])
def test_nothing_of_a_server_outlives_it(stock: Path, how: str) -> None:
    def work(ledger: Ledger, drive: SimulatedDrive) -> None:
        cluster = cluster_of(ledger)
        cluster.data, cluster.wal = drive.mount_point / "data", drive.mount_point / "wal"
        cluster.create(stock)
        cluster.start(stock, {"fsync": "off"})
        run_inside(cluster, DAEMON)
        assert (cluster.data / "daemon").read_text().strip().isdigit()
        if how == "killed before":
            os.kill(cluster.postmaster(), signal.SIGKILL)
        cluster.stop(signal.SIGINT if how == "fast" else signal.SIGQUIT)
        drive.unmount()
        assert is_free(drive)
        drive.snapshot()

    on_a_drive(work)


@pytest.mark.stack
@pytest.mark.usefixtures("home")
def test_nothing_of_a_program_outlives_it() -> None:
    def work(ledger: Ledger, drive: SimulatedDrive) -> None:
        confinement = serversandbox.confinement(guest=True)
        folder = drive.mount_point / "files"
        places = Places((folder,))
        confinement.prepare(places)
        for number in range(20):
            left = ["sh", "-c", f"cd {folder}; {DAEMON}; test {number % 2} = 0"]
            with contextlib.suppress(LabError):
                confinement.must_run(left, places, "sh")
            with confinement.started(["sleep", "600"], places):
                pass  # it has hardly begun
            drive.unmount()
            assert is_free(drive)
            drive.mount()

    on_a_drive(work)


@pytest.mark.stack
def test_processes_of_a_killed_postmaster_go_on(cluster: Cluster) -> None:
    """As without walls: they may promise a commit yet, and a power cut asks what became of it."""
    run_inside(cluster, "mkfifo fifo")

    def wait() -> None:
        with contextlib.suppress(psycopg.Error), cluster.connect() as connection:
            connection.execute("CREATE TEMPORARY TABLE said (line text)")
            connection.execute("COPY said FROM PROGRAM 'cat fifo'")

    thread = threading.Thread(target=wait)
    thread.start()
    postmaster = psutil.Process(cluster.postmaster())
    busy = None
    while busy is None:
        children = postmaster.children()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                busy = child if "COPY" in " ".join(child.cmdline()) else busy
    postmaster.kill()
    while cluster.alive():
        pass
    # Those that wait for nothing else have noticed.
    psutil.wait_procs([child for child in children if child != busy], timeout=60)
    assert busy.is_running()
    cluster.stop(signal.SIGQUIT)
    assert not busy.is_running()
    thread.join()


@pytest.mark.stack
def test_server_ends_with_a_lab_that_is_killed(home: Path, stock: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from wallab.machine import process, serversandbox\n"
        "from wallab.machine.ledger import Ledger\n"
        "from wallab.servers.cluster import Cluster\n"
        "owned = Ledger.open(); home = owned.folder / 'home'; home.mkdir(); process.own(home)\n"
        "confinement = serversandbox.confinement(guest=True)\n"
        "cluster = Cluster(home / 'data', home / 'wal', owned, confinement)\n"
        "server = Path(sys.argv[1]); cluster.create(server); cluster.start(server, {})\n"
        "print(cluster.postmaster(), flush=True); time.sleep(600)\n"
    )
    command: list[str | Path] = [sys.executable, "-c", program, stock]
    with process.started(command, cwd=paths.LAB, stdout=subprocess.PIPE) as lab:
        assert home
        assert lab.stdout is not None
        postmaster = psutil.Process(int(lab.stdout.readline()))
        processes = [postmaster, *postmaster.children()]
        lab.kill()
        assert psutil.wait_procs(processes, timeout=60)[1] == []


# --- the lab's own way to it ----------------------------------------------------------------


@pytest.mark.stack
def test_link_to_the_socket_of_another_server(
    cluster: Cluster, home: Path, stock: Path, ledger: Ledger
) -> None:
    """The lab's superuser must not be led to another cluster of the same user's."""
    assert ledger
    second = Ledger.open()
    other = cluster_of(second)
    try:
        other.create(stock)
        other.start(stock, {"fsync": "off"})
        name = ".s.PGSQL.5432"
        run_inside(cluster, f"ln -sf {other.socket}/{name} {cluster.socket}/{name}")
        assert (cluster.socket / name).resolve() == other.socket / name
        with pytest.raises(psycopg.OperationalError, match="another server answers"):
            cluster.connection()
        with other.connect() as connection:
            row = connection.execute("SHOW data_directory").fetchone()
            assert row == (str(other.data),)
    finally:
        other.stop(signal.SIGQUIT)
        second.close()


@pytest.mark.stack
def test_what_a_server_left_for_the_next(cluster: Cluster, stock: Path) -> None:
    deep = "d/" * 1500
    run_inside(
        cluster,
        f"cd {cluster.socket}; rm -f .s*; mkdir -p .s.PGSQL.5432/x; "
        f"ln -s {cluster.log} .s.PGSQL.5432.lock; mkdir -p {deep}",
    )
    cluster.stop(signal.SIGQUIT)
    cluster.start(stock, {"fsync": "off"})
    assert sorted(path.name for path in cluster.socket.iterdir()) == [
        ".s.PGSQL.5432", ".s.PGSQL.5432.lock",
    ]  # fmt: skip


@pytest.mark.stack
def test_memory_and_processors(ledger: Ledger, stock: Path) -> None:
    """They are the server's own, and what keeps it does not count."""
    group = MemoryGroup(f"wal-lab-test-{os.getpid()}", 200 << 20, ledger)
    cluster = cluster_of(ledger, group=group)
    try:
        cluster.create(stock)
        cluster.start(stock, {}, cpus=1)
        postmaster = psutil.Process(cluster.postmaster())
        assert len(os.sched_getaffinity(postmaster.pid)) == 1
        kept = cluster.connection()  # and no other process comes or goes for it
        inside = set(map(int, (group.path / "cgroup.procs").read_text().split()))
        known = {postmaster.pid, *(child.pid for child in postmaster.children())}
        assert known <= inside
        outer = {parent.pid for parent in postmaster.parents()}
        assert outer & inside == set()
        kept.close()
        assert cluster.cpu_seconds() > 0
    finally:
        cluster.stop(signal.SIGQUIT)
        group.close()


@needs_root
def test_sandbox_that_fails_is_a_server_that_fails(ledger: Ledger, tree: Path) -> None:
    cluster = cluster_of(ledger)  # whose folders were never made
    with pytest.raises(ServerFailed, match="bwrap: Can't find source path"):
        cluster.start(tree, {})
    assert not cluster.alive()


# --- where there is no bubblewrap -----------------------------------------------------------


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine whose bubblewrap makes nothing."""
    monkeypatch.delenv(sandbox.SETTING, raising=False)
    monkeypatch.delenv("WALLAB_IMAGE", raising=False)
    monkeypatch.setattr(sandbox, "refused", lambda: "no namespaces")
    monkeypatch.setattr(sandbox, "_network", lambda: "eth0")
    return monkeypatch


@pytest.mark.parametrize("guest", [True, False])
def test_machine_without_bubblewrap_runs_no_server(
    without: pytest.MonkeyPatch, guest: bool
) -> None:
    with pytest.raises(MachineError, match=r"no namespaces.*--no-sandbox") as refused:
        serversandbox.confinement(guest=guest)
    assert refused.value.exit_code == 3
    without.setenv(sandbox.SETTING, "1")
    assert type(serversandbox.confinement(guest=guest)) is Confinement


def test_container_is_a_sandbox_without_a_network(without: pytest.MonkeyPatch) -> None:
    without.setenv("WALLAB_IMAGE", "builder")
    with pytest.raises(MachineError, match=r"eth0.*run --rm patched.*--network none"):
        serversandbox.confinement(guest=True)
    assert type(serversandbox.confinement(guest=False)) is Confinement
    # What came with an image is as trusted as the image.
    without.setenv("WALLAB_IMAGE", "lab")
    assert type(serversandbox.confinement(guest=True)) is Confinement
    without.setenv("WALLAB_IMAGE", "builder")
    without.setattr(sandbox, "_network", lambda: "")
    assert type(serversandbox.confinement(guest=True)) is Confinement


def test_mounts_are_unchanged() -> None:
    """The lab's own mount namespace has nothing of the walls."""
    before = mounts.table()
    if reason := sandbox.refused():
        pytest.skip(f"no bubblewrap here: {reason}")
    serversandbox.ServerSandbox().must_run(["true"], Places(), "true")
    assert mounts.table() == before
