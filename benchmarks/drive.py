#!/usr/bin/env python3
"""What the simulated drive does on this machine, beside what it should do, as ratios.

usage: .venv/bin/python benchmarks/drive.py [INSTALLED-SERVER]

Needs root. Takes about three minutes. With an installed server (build/18.6/stock) its pg_test_fsync
runs on ata-2005, beside the published figures of a real 7200 rpm drive. Lateness and rates are
those of this machine as busy as it is; run it alone.
"""

import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from wallab.drives import simulated
from wallab.drives.simulated import SimulatedDrive
from wallab.errors import MachineError
from wallab.machine import mounts, provision, serversandbox
from wallab.machine.confinement import Places
from wallab.machine.ledger import Ledger
from wallab.machine.loop import LoopDevice
from wallab.record import driveprofile

MIB = 1 << 20

# Western Digital WD1001FALS, 7200 rpm, write cache on and flushed, operations a second
# (pgsql-hackers, pg_test_fsync); our lines of pg_test_fsync by their order in its output.
PUBLISHED = {
    "open_datasync, one 8 kB": 81.3,
    "fdatasync, one 8 kB": 82.5,
    "fsync, one 8 kB": 26.6,
    "open_sync, one 8 kB": 26.4,
    "open_datasync, two 8 kB": 38.8,
    "fdatasync, two 8 kB": 81.0,
    "open_sync, two 8 kB": 13.0,
}
PARTITIONS_GIB = (1, 16)
"""The matrix's, and a system's of those years; how large the published one was is not known."""


def show(what: str, measured: float, wanted: float, unit: str, bound: str) -> None:
    """Print one figure, what it is compared with, their ratio and what is asked of it."""
    print(f"{what:52} {measured:10.1f} {wanted:10.1f} {unit:9} {measured / wanted:7.3f}  {bound}")


def fio(target: Path, *options: str) -> dict[str, float]:
    """Run fio on a file or device; return its rates: operations and bytes a second."""
    command = ["fio", "--name=b", f"--filename={target}", "--output-format=json", *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    job = json.loads(text[text.index("{") :])["jobs"][0]
    return {
        "iops": job["read"]["iops"] + job["write"]["iops"],
        "bytes": job["read"]["bw_bytes"] + job["write"]["bw_bytes"],
    }


def figures(profile: str) -> dict[str, float]:
    """What the profile's parameters say on the model's virtual clock (drive/tests/figures.c)."""
    program = provision.drive_program().parent / "build" / "tests" / "figures"
    settings = [f"{key}={value}" for key, value in driveprofile.profile(profile).items()]
    out = subprocess.run([program, *settings], check=True, capture_output=True, text=True)
    values: dict[str, float] = json.loads(out.stdout)
    return values


def direct(rw: str, block: str, depth: int, seconds: int) -> list[str]:
    """Options of fio for requests past the page cache."""
    return [f"--rw={rw}", f"--bs={block}", "--direct=1", "--ioengine=libaio",
            f"--iodepth={depth}", f"--runtime={seconds}", "--time_based"]  # fmt: skip


SYNCED = ["--rw=write", "--bs=8k", "--size=64m", "--fdatasync=1", "--overwrite=1", "--time_based"]


def mechanics(drive: SimulatedDrive) -> None:
    """Rates of the rotating drive against its own arithmetic."""
    wanted = figures("ata-2005")
    drive.timing(False)
    fio(drive.mount_point / "f", "--rw=write", "--bs=1m", "--size=64m", "--end_fsync=1")
    drive.timing(True)
    rate = fio(drive.mount_point / "f", *SYNCED, "--runtime=10")["iops"]
    show("8 kB fdatasync, cache off", rate, 120, "1/s", "± 2%")
    before = psutil.Process(drive.server.pid).cpu_times()
    drive.control.ask("reset")
    fio(drive.loop.path, *direct("randread", "4k", 1, 10))
    counters = drive.reading().counters
    measured = 1e9 * counters["reads"] / counters["command_ns"]
    show("random 4 kB reads, by the drive's clock", measured, wanted["read_1"], "1/s", "± 3%")
    measured = fio(drive.loop.path, *direct("read", "128k", 8, 10))["bytes"]
    show("sequential reads", measured / 1e6, wanted["sequential_bytes"] / 1e6, "MB/s", "± 3%")
    after = psutil.Process(drive.server.pid).cpu_times()
    requests = drive.reading().counters["reads"]
    used = after.user + after.system - before.user - before.system
    print(f"{'processor time of the server for 1000 requests':52} {used / requests * 1e6:10.1f} ms")


def lateness(drive: SimulatedDrive, busy: bool) -> None:
    """Delivered minus modelled, with the processors as they are or kept busy."""
    with contextlib.ExitStack() as stack:
        for _ in range(psutil.cpu_count() or 1 if busy else 0):
            spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(spin.wait)
            stack.callback(spin.kill)
        drive.control.ask("reset")
        fio(drive.loop.path, *direct("randread", "4k", 4, 10))
        late = drive.reading().lateness
    name = f"lateness, {'both processors kept busy' if busy else 'nothing added'}"
    parts = ", ".join(f"{key[:-3]} {late[key] / 1e3:.0f}" for key in ("p50_ns", "p99_ns", "max_ns"))
    print(f"{name:52} {parts} us (asked: p99 <= 500 idle)")


def parallelism(drive: SimulatedDrive) -> None:
    """How many requests of a fixed time the whole way carries at once."""
    drive.timing(True)
    drive.control.ask_idle("profile constant_latency_ns=5000000")
    for rw in ("randread", "randwrite"):
        iops = fio(drive.loop.path, *direct(rw, "8k", 32, 3))["iops"]
        show(f"effective parallelism at queue depth 32, {rw}", iops * 0.005, 32, "", ">= 28")


def untimed(drive: SimulatedDrive) -> None:
    """With timing off, against the same file system on a plain loop file in memory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        memory, files = Path(folder, "memory"), Path(folder, "files")
        memory.mkdir()
        files.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", memory], check=True)
        stack.callback(mounts.unmount, memory)
        with (memory / "image").open("wb") as image:
            image.truncate(drive.size)
        loop = LoopDevice(memory / "image")
        stack.callback(loop.detach)
        subprocess.run([*simulated.FILE_SYSTEMS["xfs"], loop.path], check=True)
        mounts.mount(loop.path, files, "xfs")
        stack.callback(mounts.unmount, files)
        drive.timing(False)
        drive.set_write_cache("on")
        rates: dict[str, list[float]] = {}
        for _ in range(5):  # in turn, since the machine does not stand still
            for name, place in (("drive", drive.mount_point), ("loop", files)):
                rate = fio(place / "u", "--rw=write", "--bs=1m", "--size=256m", "--end_fsync=1")
                rates.setdefault(f"{name} bytes", []).append(rate["bytes"])
                rate = fio(place / "u", *SYNCED, "--runtime=2")
                rates.setdefault(f"{name} iops", []).append(rate["iops"])
        middle = {key: statistics.median(values) for key, values in rates.items()}
        show("timing off: 8 kB fdatasync, to a loop file in memory", middle["drive iops"],
             middle["loop iops"], "1/s", ">= 0.5")  # fmt: skip
        show("timing off: sequential, to a loop file in memory", middle["drive bytes"] / 1e6,
             middle["loop bytes"] / 1e6, "MB/s", ">= 0.5")  # fmt: skip


def memory(ledger: Ledger) -> None:
    """What a drive of 2 GB that holds 400 MB costs."""
    drive = SimulatedDrive("memory", "ata-2005", 2048 * MIB, "xfs", ledger)
    with contextlib.closing(drive):
        drive.mount()
        fio(drive.mount_point / "m", "--rw=write", "--bs=1m", "--size=400m", "--end_fsync=1")
        resident = psutil.Process(drive.server.pid).memory_info().rss / MIB
    show("memory of a 2 GB drive that holds 400 MB", resident, 400, "MB", "")


def postgres(server: Path, gib: int, ledger: Ledger) -> None:
    """pg_test_fsync with the cache on and flushed, relative to its fdatasync.

    On ext4, the nearest to what those who published had: what fsync does beyond fdatasync is the
    file system's journal, which on XFS takes fewer writes. How far the heads travel to that
    journal, in the middle of a file system of so many GiB, decides what it costs.
    """
    print(f"ata-2005 with ext4 of {gib} GB, and the published drive:")
    drive = SimulatedDrive(f"fsync-{gib}", "ata-2005", gib * 1024 * MIB, "ext4", ledger)
    with contextlib.closing(drive):
        drive.mount()
        drive.timing(True)
        drive.set_write_cache("on")
        file = drive.mount_point / "files" / "pg_test_fsync"
        confinement = serversandbox.confinement(guest=True)
        places = Places((file.parent,), (server,))
        confinement.prepare(places)
        command: list[str | Path] = [server / "bin" / "pg_test_fsync", "-s", "2", "-f", file]
        with confinement.started(command, places, stdout=subprocess.PIPE) as child:
            out = child.communicate(timeout=600)[0].decode()
        if child.returncode:
            raise MachineError(f"pg_test_fsync exited with {child.returncode}")
    rates: dict[str, float] = {}
    sizes = iter(("one", "two"))
    for part in out.split("Compare file sync methods using ")[1:3]:
        size = next(sizes)
        for method, rate in re.findall(r"^\s+(\w+)\s+([\d.]+) ops/sec", part, re.MULTILINE):
            rates[f"{method}, {size} 8 kB"] = float(rate)
    base = "fdatasync, one 8 kB"
    for name, published in PUBLISHED.items():
        show(f"pg_test_fsync {name}", rates[name], published, "1/s", "")
        if name != base:
            show("  relative to fdatasync", rates[name] / rates[base], published /
                 PUBLISHED[base], "", "± 15%")  # fmt: skip


def main() -> int:
    """Measure and print."""
    mounts.enter_private_namespace()
    print(f"{'':52} {'found':>10} {'wanted':>10} {'':9} {'ratio':>7}  asked")
    ledger = Ledger.open(f"benchmark-{time.time_ns()}")
    try:
        drive = SimulatedDrive("wal", "ata-2005", 1024 * MIB, "xfs", ledger)
        with contextlib.closing(drive):
            drive.mount()
            mechanics(drive)
            lateness(drive, busy=False)
            lateness(drive, busy=True)
            drive.set_write_cache("off")
            untimed(drive)
            drive.unmount()
            parallelism(drive)
        memory(ledger)
        if len(sys.argv) > 1:
            for gib in PARTITIONS_GIB:
                postgres(Path(sys.argv[1]).absolute(), gib, ledger)
    except MachineError as error:
        print(f"drive: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
