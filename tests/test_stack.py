"""The real stack: built servers on simulated drives, from the commands that users type."""

import contextlib
import itertools
import json
import mmap
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from smallrun import run_small

from benchmarks.leftovers import wait_for_nothing
from wallab import paths
from wallab.drives import trace as drivetrace
from wallab.drives.simulated import SimulatedDrive
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.machine import mounts
from wallab.machine.ledger import Ledger
from wallab.record import manifest
from wallab.record.samples import SampleFile
from wallab.servers.builder import Server

pytestmark = pytest.mark.stack

# A matrix small enough for a test; what is measured is not looked at, only what was counted.
SMALL = """
[experiment.small]
title = "small"
source = "18"
workload = "tpcb-like"
rows = ["variant", "write_cache"]
column = "sync"
relative_to = "fsync=false"
[experiment.small.axes]
variant = ["baseline", "gather-write", "both", "committed"]
write_cache = ["off", "on"]
sync = ["fsync=false", "fdatasync", "open_sync", "open_datasync", "fsync_direct", "open_direct"]
[experiment.small.drive.wal]
profile = "ata-2005"
size_mb = 1024
[experiment.small.drive.data]
profile = "ata-2005"
size_mb = 1024
write_cache = "on"
[experiment.small.settings]
wal_buffers = "512kB"
max_wal_size = "128MB"
min_wal_size = "128MB"
[experiment.small.preset.smoke]
about = "for tests"
scale = 1
clients = 8
transactions = 10
warm_up_seconds = 0
rounds = 1
only = [
  { variant = ["baseline", "both", "committed"], write_cache = "off" },
  { variant = "gather-write", write_cache = "on" },
]
"""

LONG = SMALL.replace("rounds = 1", "rounds = 50")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file with the small experiment."""
    file = tmp_path / "matrix.toml"
    file.write_text(SMALL)
    return file


def lab(command: str, *arguments: str | Path) -> list[str]:
    """The command line of one of the lab's commands."""
    return [str(paths.LAB / "scripts" / command), *map(str, arguments)]


@pytest.fixture(scope="module")
def run_folder(servers: dict[str, Server], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the small experiment."""
    assert servers
    ran = run_small(SMALL, tmp_path_factory.mktemp("run"), "--seed", "1")
    (ran.folder.parent / "stdout").write_text(ran.table)
    return ran.folder


def test_run_prints_the_table_and_keeps_the_samples(run_folder: Path) -> None:
    printed = (run_folder.parent / "stdout").read_text()
    assert printed == (run_folder / "table.txt").read_text()
    assert "(N/A)" in printed  # gather-write has no open_direct
    samples = SampleFile(run_folder / "samples.jsonl").read()
    # baseline, gather-write: 4 methods of the columns; both: all 6; committed: 4.
    assert len(samples) == 4 + 4 + 6 + 4
    for sample in samples:
        assert sample.figures is not None
        assert sample.figures.transactions == 80
        assert sample.wal is not None
        assert sample.wal.bytes
        assert sample.wal.writes
        assert sample.wal.full_page_images
        assert sample.figures.course is not None
        assert 0 < sample.figures.course.latency_ms.p50 <= sample.figures.course.latency_ms.max
        assert sum(sample.figures.course.per_second) <= 80
        assert sample.cpu_seconds is not None
        assert sample.cpu_seconds.server > 0
        assert set(sample.phases) == {"restore", "start", "read", "checkpoint", "count",
                                      "measure", "stop"}  # fmt: skip


def test_run_leaves_the_servers_alone(run_folder: Path, servers: dict[str, Server]) -> None:
    assert run_folder.exists()
    for server in servers.values():
        assert (server.path / "bin" / "postgres").is_file()
        assert (server.path / "build.json").is_file()


def test_tabulating_again_gives_the_same_bytes(run_folder: Path) -> None:
    for kind, file in (("text", "table.txt"), ("markdown", "table.md"), ("csv", "table.csv")):
        command = lab("tabulate", run_folder, "--format", kind)
        again = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert again == (run_folder / file).read_text()
    command = lab("tabulate", run_folder, "--format", "json")
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["rows"]


EXPECTED_FLAGS = {
    "fsync=false": "none",
    "fdatasync": "none",
    "open_sync": "O_SYNC",
    "open_datasync": "O_DSYNC",
    "fsync_direct": "O_DIRECT",
    "open_direct": "O_DIRECT|O_SYNC",
}


def test_kernel_saw_the_flags_of_every_method(run_folder: Path) -> None:
    seen = set()
    for sample in SampleFile(run_folder / "samples.jsonl").read():
        expected = EXPECTED_FLAGS[sample.cell["sync"]]
        if sample.cell["variant"] == "committed" and sample.cell["sync"].startswith("open_"):
            expected = f"O_DIRECT|{expected}"
        # A short run may end before anybody looked; but nothing else may have been seen.
        assert set(sample.open_flags) <= {expected}, sample.cell
        if sample.open_flags:
            seen.add(sample.cell["sync"])
    assert len(seen) >= 3


def test_page_at_a_time_and_gathered_by_the_servers_count(run_folder: Path) -> None:
    for sample in SampleFile(run_folder / "samples.jsonl").read():
        assert sample.wal is not None
        assert sample.wal.writes
        assert sample.wal.write_bytes
        per_write = sample.wal.write_bytes / sample.wal.writes
        if sample.cell["variant"] == "baseline":
            assert per_write == 8192
        else:
            assert per_write > 8192


def test_flushes_reach_the_drive_only_when_its_cache_is_on(run_folder: Path) -> None:
    for sample in SampleFile(run_folder / "samples.jsonl").read():
        flushes = sample.drive["wal"].counters["flushes"]
        if sample.cell["write_cache"] == "off":
            assert flushes == 0
        elif sample.cell["sync"] != "fsync=false":
            assert flushes > 0


def test_directory_that_is_taken(run_folder: Path, small: Path) -> None:
    result = subprocess.run(
        lab("run-matrix", "small", "--matrix", small, "--output", run_folder),
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 2
    assert "is there already" in result.stderr
    assert SampleFile(run_folder / "samples.jsonl").read()


FAILING = (
    SMALL.replace('"baseline", "gather-write", "both", "committed"', '"stock"')
    .replace("[experiment.small.settings]", '[experiment.small.settings]\nmax_connections = "5"')
    .split("only = [")[0]
    + 'only = [{ write_cache = "off", sync = "fdatasync" }]\n'
)
"""For 8 clients, which are more than the server lets in."""


@pytest.mark.usefixtures("servers")
def test_a_cell_that_fails_says_why(small: Path, tmp_path: Path) -> None:
    small.write_text(FAILING)
    folder = tmp_path / "out"
    result = subprocess.run(
        lab("run-matrix", "small", "--preset", "smoke", "--matrix", small, "--output", folder),
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    assert "failed in every round: stock, off, fdatasync" in result.stderr
    assert " failed" in result.stdout
    (sample,) = SampleFile(folder / "samples.jsonl").read()
    assert sample.state == "failed"
    assert "pgbench exited with" in sample.error
    assert "the server's log: " in sample.error
    assert "too many clients" in sample.error.partition("the server's log: ")[2]
    assert wait_for_nothing() == {}


def hear_interrupts() -> None:
    """What a child runs first: a job in the background starts deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_long_run(small: Path, folder: Path) -> subprocess.Popen[str]:
    """Start a run that would take long, and return when it has measured something."""
    small.write_text(LONG)
    child = subprocess.Popen(
        lab("run-matrix", "small", "--preset", "smoke", "--matrix", small, "--output", folder),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts,
    )  # fmt: skip
    samples = folder / "samples.jsonl"
    deadline = time.monotonic() + 300
    while not (samples.exists() and samples.read_bytes().count(b"\n") >= 2):
        assert child.poll() is None, child.stderr.read() if child.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return child


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_nothing(small: Path, tmp_path: Path, how: signal.Signals) -> None:
    child = start_long_run(small, tmp_path / "out")
    child.send_signal(how)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "--resume" in errors
    assert wait_for_nothing(5) == {}


@pytest.mark.usefixtures("servers")
def test_killed_run_is_cleared_by_the_next_and_resumed(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    child = start_long_run(small, folder)
    child.kill()
    child.communicate(timeout=60)
    before = SampleFile(folder / "samples.jsonl").read()
    # The same experiment must be named; a changed matrix is refused.
    small.write_text(LONG.replace('wal_buffers = "512kB"', 'wal_buffers = "1MB"'))
    resume = lab("run-matrix", "--resume", folder, "--matrix", small)
    result = subprocess.run(resume, capture_output=True, text=True)
    assert result.returncode == 2
    assert "experiment" in result.stderr
    assert SampleFile(folder / "samples.jsonl").read() == before
    # The refused start has cleared what the kill left.
    assert wait_for_nothing(5) == {}
    small.write_text(LONG)
    child = subprocess.Popen(
        resume,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    )
    while len(SampleFile(folder / "samples.jsonl").read()) < len(before) + 2:
        assert child.poll() is None, child.stderr.read() if child.stderr else ""
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    after = SampleFile(folder / "samples.jsonl").read()
    assert after[: len(before)] == before
    places = [(s.round, tuple(s.cell.items())) for s in after]
    assert len(places) == len(set(places))
    assert wait_for_nothing(5) == {}


@pytest.mark.usefixtures("run_folder")
def test_next_user_of_a_loop_device_finds_it_as_it_was(tmp_path: Path) -> None:
    """A run has told loop devices “write through”, which the kernel keeps for whoever is next."""
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    attached: list[str] = []
    try:
        for _ in range(2):  # as many as the lab used
            command = ["losetup", "--find", "--show", str(file)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            attached.append(output.strip())
            queue = Path("/sys/block") / Path(attached[-1]).name / "queue"
            assert (queue / "write_cache").read_text().strip() == "write back"
    finally:
        for device in attached:
            subprocess.run(["losetup", "--detach", device], check=True)


@pytest.mark.usefixtures("servers")
def test_what_strace_sees_of_one_commit(servers: dict[str, Server], tmp_path: Path) -> None:
    """One transaction of many pages: the system calls on its segment, method by method."""
    home = Path("/tmp") / f"wallab-strace-{os.getpid()}"  # noqa: S108 - reachable for all users
    home.mkdir()
    try:
        for variant, method, flags, sync in (
            ("baseline", "fdatasync", set(), "fdatasync"),
            ("both", "open_direct", {"O_DIRECT", "O_SYNC"}, None),
            ("both", "open_datasync_direct", {"O_DIRECT", "O_DSYNC"}, None),
            ("both", "fsync_direct", {"O_DIRECT"}, "fsync"),
            ("both", "fdatasync_direct", {"O_DIRECT"}, "fdatasync"),
            ("both", "open_sync", {"O_SYNC"}, None),
            ("committed", "open_sync", {"O_DIRECT", "O_SYNC"}, None),
        ):
            trace = trace_commit(servers[variant].path, method, home / f"{variant}-{method}")
            opened = re.findall(r'openat\([^"]*"[^"]*pg_wal/[0-9A-F]{24}", ([A-Z_|]+)', trace)
            assert opened, (variant, method)
            interesting = {"O_DIRECT", "O_SYNC", "O_DSYNC"}
            assert set(opened[-1].split("|")) & interesting == flags, (variant, method, opened)
            synced = set(re.findall(r"\b(fsync|fdatasync)\(", trace))
            assert synced == ({sync} if sync else set()), (variant, method)
            sizes = [int(size) for size in re.findall(r"pwritev?(?:64)?\(.* = (\d+)$", trace, re.M)]
            pages = [size // 8192 for size in sizes if size % 8192 == 0 and size]
            assert pages, (variant, method)
            if variant == "baseline":
                assert set(pages) == {1}
            else:
                assert max(pages) > 1
    finally:
        shutil.rmtree(home)


def trace_commit(server: Path, method: str, home: Path) -> str:
    """Run a single-process server on a fresh cluster under strace; return its system calls."""
    home.mkdir()
    shutil.copytree(server, home / "server", symlinks=True)
    subprocess.run(["chown", "-R", "wallab", str(home)], check=True)
    bin_folder = home / "server" / "bin"
    initdb = [bin_folder / "initdb", "-D", home / "data", "-U", "postgres", "-A", "trust",
              "--no-locale", "--no-sync"]  # fmt: skip
    as_user = {"user": "wallab", "group": "wallab", "extra_groups": [], "cwd": "/"}
    quiet = {"stdout": subprocess.DEVNULL, "check": True}
    subprocess.run(initdb, **as_user, **quiet)  # type: ignore[call-overload]
    # One commit of some 60 pages; wal_buffers is large enough to hold them all.
    script = (
        "CREATE TABLE t (a text)\n"
        "INSERT INTO t SELECT repeat(chr(65 + i % 26), 1900) FROM generate_series(1, 240) i\n"
    )
    command = ["strace", "-f", "-e", "trace=openat,pwrite64,pwritev,fsync,fdatasync",
               "-P", "nothing", "-o", home / "strace", bin_folder / "postgres", "--single",
               "-D", home / "data", "-c", f"wal_sync_method={method}", "-c", "wal_buffers=4MB",
               "postgres"]  # fmt: skip
    command = [part for part in command if part not in ("-P", "nothing")]
    subprocess.run(command, input=script.encode(), **as_user, **quiet)  # type: ignore[call-overload]
    lines = (home / "strace").read_text().splitlines()
    return wal_calls(lines)


def wal_calls(lines: list[str]) -> str:
    """Keep the calls on WAL segments from the first write of WAL on, and their opens."""
    segments: set[str] = set()
    kept = []
    for line in lines:
        opened = re.search(r'openat\([^"]*"[^"]*pg_wal/[0-9A-F]{24}".* = (\d+)$', line)
        if opened:
            if "O_RDONLY" not in line:
                segments.add(opened[1])
                kept.append(line)
            continue
        call = re.match(r"(?:\d+ +)?(pwrite64|pwritev|fsync|fdatasync)\((\d+)", line)
        if call and call[2] in segments:
            kept.append(line)
        closed = re.search(r"openat\(.* = (\d+)$", line)
        if closed:
            segments.discard(closed[1])
    return "\n".join(kept)


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[SimulatedDrive]:
    """A simulated drive with a mounted file system, timing on, cache off."""
    ledger = Ledger.open(f"test-{os.getpid()}-{time.monotonic_ns()}")
    try:
        with contextlib.closing(SimulatedDrive("wal", "ata-2005", 1 << 30, "xfs", ledger)) as drive:
            drive.mount()
            drive.set_write_cache("off")
            yield drive
    finally:
        ledger.close()
    assert wait_for_nothing(5) == {}


def test_sequential_fdatasync_waits_a_revolution_each(
    drive: SimulatedDrive, tmp_path: Path
) -> None:
    """At 7200 rpm: each sync of 8 kB ends a whole number of revolutions after the one before.

    By the drive's clock, and but for the transfer of its own 16 sectors, and for the skew where a
    track ends; a busy machine may miss a turn, which is a whole one more.
    """
    count = 60
    trace = tmp_path / "trace"
    descriptor = os.open(drive.mount_point / "f", os.O_RDWR | os.O_CREAT)
    for number in range(count):
        os.pwrite(descriptor, b"x" * 8192, number * 8192)
    os.fsync(descriptor)
    drive.timing(True)
    drive.control.ask(f"trace {trace}")
    begun = time.monotonic()
    for number in range(count):
        os.pwrite(descriptor, b"y" * 8192, number * 8192)
        os.fdatasync(descriptor)
    rate = count / (time.monotonic() - begun)
    drive.control.ask("trace off")
    os.close(descriptor)
    drive.timing(False)
    recorded = drivetrace.read(trace)
    turn = recorded.revolution_ns
    assert turn == pytest.approx(1e9 / 120, abs=1)
    writes = [request for request in recorded.requests if request.kind == "write"]
    assert len(writes) == count
    assert {write.count for write in writes} == {16}
    assert rate <= 124  # never faster than the platter, however late the machine
    same_track = 0
    for before, after in itertools.pairwise(writes):
        rest = (after.done - before.done) % turn
        if abs(rest - after.transfer) < turn * 1e-4:
            same_track += 1
    # 960 sectors are on one track or two.
    assert same_track >= count - 3


def test_timing_of_a_busy_drive(drive: SimulatedDrive) -> None:
    """Readers who leave no moment without requests do not keep the timing from being switched."""
    end = threading.Event()

    def read(seed: int) -> None:
        places = random.Random(seed)
        block = mmap.mmap(-1, 4096)
        descriptor = os.open(drive.loop.path, os.O_RDONLY | os.O_DIRECT)
        while not end.is_set():
            os.preadv(descriptor, [block], 4096 * places.randrange(drive.size // 4096))
        os.close(descriptor)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(32)]
    for reader in readers:
        reader.start()
    try:
        for on in (True, False) * 3:
            drive.timing(on)
            assert drive.control.ask("state")["timing"] == ("on" if on else "off")
            time.sleep(0.5)
    finally:
        end.set()
        for reader in readers:
            reader.join()


def test_write_cache_is_read_back(drive: SimulatedDrive) -> None:
    drive.set_write_cache("on")
    assert drive.write_cache() == {"drive": "on", "kernel": "write back"}
    drive.set_write_cache("on-unflushed")
    assert drive.write_cache() == {"drive": "on", "kernel": "write through"}


def test_restore_brings_the_snapshot_back(drive: SimulatedDrive) -> None:
    file = drive.mount_point / "f"
    file.write_bytes(b"a" * 100_000)
    drive.unmount()
    drive.snapshot()
    for _ in range(3):
        drive.mount()
        assert file.read_bytes() == b"a" * 100_000
        file.write_bytes(b"b" * 3_000_000)
        (drive.mount_point / "g").write_bytes(b"g")
        drive.unmount()
        drive.restore()
    drive.mount()
    assert not (drive.mount_point / "g").exists()


def test_bad_profile_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wallab.drives.simulated.profile", lambda *_: {"rpm": "fast"})
    ledger = Ledger.open(f"test-{os.getpid()}-bad")
    try:
        with pytest.raises(Exception, match="rpm"):
            SimulatedDrive("wal", "ata-2005", 1 << 30, "xfs", ledger)
    finally:
        ledger.close()
    assert wait_for_nothing(5) == {}


def test_drive_by_hand(tmp_path: Path) -> None:
    place = tmp_path / "x"
    place.mkdir()
    up = lab("drive", "up", "--write-cache", "off", "--size", "512M", place)
    result = subprocess.run(up, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    try:
        (place / "file").write_text("hello")
        counters = subprocess.run(lab("drive", "counters", place), capture_output=True, check=True)
        assert json.loads(counters.stdout)["state"]["write_cache"] == "off"
        assert (
            str(place)
            in subprocess.run(
                lab("drive", "list"), capture_output=True, text=True, check=True
            ).stdout
        )
        again = subprocess.run(up, capture_output=True, text=True)
        assert again.returncode == 2
        assert "in use or not empty" in again.stderr
    finally:
        down = subprocess.run(lab("drive", "down", place), capture_output=True, text=True)
    assert down.returncode == 0, down.stderr
    assert not place.is_mount()
    assert wait_for_nothing(5) == {}
    gone = subprocess.run(lab("drive", "down", place), capture_output=True, text=True)
    assert gone.returncode == 2


def test_manifest_says_what_moves_the_numbers(run_folder: Path) -> None:
    plan = manifest.load(run_folder)
    assert plan.seed == 1
    assert plan.machine.kernel
    assert plan.builds["both"].source
    assert [patch.name for patch in plan.builds["both"].patches] == [
        "reload-sync", "baseline", "direct-io", "gather-write",
    ]  # fmt: skip
    assert plan.drives["wal"]["profile"] == "ata-2005"
    (template,) = plan.templates.values()
    assert template["settings"]["wal_buffers"] == "512kB"
    assert template["settings"]["fsync"] == "off"  # of the server that made the template
    assert template["data_checksums"] in {"on", "off"}
    assert template["pgbench"].startswith("pgbench (PostgreSQL) 18.")
    assert plan.mounts["data"][0] == "xfs"
    assert plan.cost is not None
    assert set(plan.cost.phases) == {"template", "restore", "start", "read", "checkpoint",
                                     "count", "measure", "stop", "other"}  # fmt: skip
    assert [session.ended for session in plan.sessions] == ["complete"]
    assert "open_direct" in plan.methods["both"]
    assert "open_direct" not in plan.methods["gather-write"]
    assert jsonfile.loads(jsonfile.dumps(plan), manifest.Manifest) == plan


def test_unmounting_what_is_busy_says_so(drive: SimulatedDrive) -> None:
    with (
        (drive.mount_point / "f").open("w"),
        pytest.raises(MachineError, match="was busy"),
    ):
        mounts.unmount(drive.mount_point, patience=0.2)
