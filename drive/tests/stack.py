#!/usr/bin/env python3
"""The drive under a loop device and XFS, on this kernel.

usage: stack.py WAL-DRIVE

Needs root, FUSE, a free loop device, xfsprogs and fio; exits 77 with the reason
otherwise. Runs in a mount namespace of its own and checks that nothing is left.
"""

import errno
import itertools
import json
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

MIB = 1 << 20
RECORD = struct.Struct("<12qIHH")  # TRACE.md
FIELDS = (
    *("sequence", "command", "arrival", "start", "done", "delivered", "overhead", "interface"),
    *("seek", "rotate", "transfer", "sector", "count", "kind", "flags"),
)
READ, WRITE, FLUSH = 0, 1, 2


def skip(reason: str) -> NoReturn:
    print(f"skipped: {reason}")
    sys.exit(77)


def run(*command: str | Path, timeout: float = 120) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0, (
        f"{' '.join(map(str, command))}: {result.stderr or result.stdout}"
    )
    return result.stdout


def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


class Drive:
    """A server, and on demand a loop device and a file system above it."""

    def __init__(self, server: str, scratch: Path, size: int, **settings: int) -> None:
        self.mount, self.control = scratch / "drive", scratch / "control"
        self.files = scratch / "files"
        self.mount.mkdir(exist_ok=True)
        self.files.mkdir(exist_ok=True)
        self.loop = ""
        command: list[str | Path] = [
            server, "--mount", self.mount, "--control", self.control, "--size", str(size),
        ]  # fmt: skip
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", "the server did not start"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(self.control))
        self.replies = self.socket.makefile()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if os.path.ismount(self.files):
            subprocess.run(["umount", self.files])
        self.detach()
        self.socket.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, "the server did not end well"
        assert not os.path.ismount(self.mount), "the mount is left"
        assert not self.control.exists(), "the socket is left"

    def tell(self, command: str, ok: bool = True) -> dict[str, Any]:
        self.socket.sendall(command.encode() + b"\n")
        reply: dict[str, Any] = json.loads(self.replies.readline())
        assert reply["ok"] == ok, f"{command}: {reply}"
        return reply

    def attach(self) -> None:
        self.loop = run("losetup", "--direct-io=on", "-f", "--show", self.mount / "disk").strip()
        listed = json.loads(run("losetup", "-J", "-l", "-O", "DIO", self.loop))
        assert listed["loopdevices"][0]["dio"], "loop refused direct I/O"

    def queue(self) -> Path:
        return Path("/sys/block", Path(self.loop).name, "queue")

    def detach(self) -> None:
        if not self.loop:
            return
        # The mode stays with the loop device's number: leave it as others expect it.
        (self.queue() / "write_cache").write_text("write back")
        run("losetup", "-d", self.loop)
        backing = self.queue().parent / "loop" / "backing_file"
        until(lambda: not backing.exists(), f"{self.loop} to be detached")
        self.loop = ""

    def format(self) -> None:
        self.tell("timing off")
        run("mkfs.xfs", "-q", "-f", "-K", self.loop)
        run("mount", self.loop, self.files)
        self.tell("timing on")

    def switch_cache(self, mode: str) -> None:
        kernel = "write back" if mode == "on" else "write through"
        (self.queue() / "write_cache").write_text(kernel)
        self.tell(f"write-cache {'off' if mode == 'off' else 'on'}")

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.tell("counters")["counters"]
        return counters


def fio(*options: str) -> dict[str, Any]:
    out = run("fio", "--name=t", "--output-format=json", *options, timeout=280)
    job: dict[str, Any] = json.loads(out[out.index("{") :])["jobs"][0]
    return job


def read_trace(path: Path) -> list[dict[str, int]]:
    data = path.read_bytes()
    assert data[:8] == b"WALDRIVE"
    assert data[8:16] == struct.pack("<II", 1, RECORD.size)
    return [dict(zip(FIELDS, fields, strict=True)) for fields in RECORD.iter_unpack(data[64:])]


def test_synchronous_rate(drive: Drive, scratch: Path) -> None:
    """8 kB fdatasync, cache off: a revolution and the transfer each."""
    trace = scratch / "trace"
    target = f"--filename={drive.files}/f"
    drive.switch_cache("off")
    drive.tell("timing off")
    fio(target, "--rw=write", "--bs=1m", "--size=8m", "--end_fsync=1")
    drive.tell("timing on")
    drive.tell("reset")
    drive.tell(f"trace {trace}")
    wall = fio(
        target, "--rw=write", "--bs=8k", "--size=8m", "--io_size=4m", "--fdatasync=1",
        "--overwrite=1", "--allow_file_create=0",
    )["write"]  # fmt: skip
    drive.tell("trace off")
    counters = drive.tell("counters")
    writes = [r for r in read_trace(trace) if r["kind"] == WRITE and r["count"] == 16]
    assert len(writes) > 500, f"{len(writes)} writes of 8 kB"
    # The machine may stall the writer for longer than a revolution; that is not the drive's
    # doing. The other cycles run in model time from one completion to the next.
    cycles = [
        b["done"] - a["done"]
        for a, b in itertools.pairwise(writes)
        if b["arrival"] - a["done"] < 7_500_000 and b["sector"] == a["sector"] + 16
    ]
    rate = 1e9 * len(cycles) / sum(cycles)
    print(
        f"8 kB fdatasync, cache off: {rate:.1f}/s modelled ({len(cycles)} of {len(writes) - 1} "
        f"cycles), {wall['iops']:.1f}/s by fio's clock"
    )
    print("lateness:", counters["lateness"])
    assert abs(rate - 120) <= 4, f"{rate:.1f} a second instead of 120 +- 4"
    assert counters["counters"]["flushes"] == 0, "write through sends no flushes"


def test_caches(drive: Drive) -> None:
    """Who flushes: nobody, the kernel, nobody."""
    for mode in ("off", "on", "on-unflushed"):
        drive.switch_cache(mode)
        drive.tell("reset")
        wall = fio(
            f"--filename={drive.files}/f", "--rw=write", "--bs=8k", "--size=8m", "--io_size=800k",
            "--fdatasync=1", "--overwrite=1", "--allow_file_create=0",
        )["write"]  # fmt: skip
        c = drive.counters()
        print(
            f"cache {mode}: {wall['iops']:.0f}/s, {c['writes']} writes, {c['flushes']} flushes, "
            f"{c['cache_write_hits']} taken by the cache"
        )
        assert (c["flushes"] >= 90) == (mode == "on"), (mode, c)
        assert (c["cache_write_hits"] > 0) == (mode != "off"), (mode, c)


def test_verify(drive: Drive) -> None:
    """Bytes come back as written, mixed and in parallel."""
    options = (
        f"--filename={drive.files}/v", "--rw=randrw", "--bsrange=4k-64k", "--size=24m",
        "--ioengine=libaio", "--direct=1", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1",
        "--verify_state_save=0", "--randseed=7",
    )  # fmt: skip
    for mode, timing, size in (("on", "on", "6m"), ("off", "off", "24m"), ("on", "off", "24m")):
        drive.switch_cache(mode)
        drive.tell(f"timing {timing}")
        job = fio(*options, f"--io_size={size}")
        assert job["error"] == 0, job["error"]
        drive.tell("timing on")
    print("verify: no errors")


def test_power_cut(drive: Drive) -> None:
    """What was flushed is there after a cut, what only the cache had is not."""
    drive.switch_cache("on")
    drive.tell("destage pause")
    kept = b"kept" * 2048
    lost = b"lost" * 2048
    fd = os.open(drive.files / "cut", os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(fd, kept, 0)
    os.fsync(fd)
    (drive.queue() / "write_cache").write_text("write through")  # nobody flushes from here
    os.pwrite(fd, lost, 0)
    os.fdatasync(fd)
    drive.tell("power off")
    try:
        os.pwrite(fd, kept, 8192)
        os.fsync(fd)
        raise AssertionError("fsync succeeded without power")
    except OSError:
        pass
    os.close(fd)
    run("umount", drive.files)
    assert drive.counters()["requests_failed"] > 0
    drive.tell("power on")
    drive.tell("destage resume")
    drive.tell("timing off")
    run("mount", drive.loop, drive.files)
    survivor = (drive.files / "cut").read_bytes()[:8192]
    assert survivor == kept, f"{survivor[:4]!r} is there"
    drive.tell("timing on")
    print("power cut: flushed kept, unflushed lost, errors between")


def error_of(action: Callable[[], object]) -> int:
    """What the action fails with; 0 if it does not."""
    try:
        action()
    except OSError as error:
        return error.errno or -1
    return 0


def write_pages(fd: int, fill: bytes, count: int, size: int = 8192) -> int:
    """Pages one after the other past the page cache, until the drive fails; how many it took."""
    page = mmap.mmap(-1, size)  # aligned, as O_DIRECT wants it
    page.write(fill * size)
    for i in range(count):
        if error := error_of(partial(os.pwrite, fd, page, i * size)):
            assert error == errno.EIO, os.strerror(error)
            return i
    return count


def test_losing_power(server: str, scratch: Path) -> None:
    """What the control socket says of cuts is what a user of the block device finds."""
    with Drive(server, scratch, 64 * MIB) as drive:
        drive.attach()
        fd = os.open(drive.loop, os.O_RDWR | os.O_DIRECT)
        page = mmap.mmap(-1, 8192)

        def fill_of(i: int) -> bytes:
            os.preadv(fd, [page], i * 8192)
            return page[:1]

        try:
            drive.tell("destage pause")
            drive.tell("write-cache on")
            assert write_pages(fd, b"a", 20) == 20
            os.fsync(fd)
            # The fifth write is the last; nothing of it had left the cache.
            before = time.monotonic_ns()
            drive.tell("power off writes=5 seed=3")
            assert drive.tell("state")["cut_planned"]
            assert write_pages(fd, b"b", 20) == 5
            cut = drive.tell("cut")
            assert drive.tell("state")["power"] == "off"
            assert before < cut["at_ns"] < time.monotonic_ns(), cut
            assert (cut["lost"], cut["lost_sectors"]) == ([[0, 80]], 80), cut
            drive.tell("power on")
            assert [fill_of(i) for i in range(6)] == [b"a"] * 6
            # A drive that lies: flushed, acknowledged and lost.
            drive.tell("flush-lies on")
            assert write_pages(fd, b"c", 3) == 3
            os.fsync(fd)
            drive.tell("power off")
            drive.tell("power on")
            drive.tell("flush-lies off")
            assert [fill_of(i) for i in range(3)] == [b"a"] * 3
            # The battery keeps what nobody has flushed.
            drive.tell("write-cache battery")
            assert write_pages(fd, b"d", 3) == 3
            drive.tell("power off within=1")
            until(lambda: drive.tell("state")["power"] == "off", "the planned cut")
            assert drive.tell("cut")["lost"] == []
            drive.tell("power on")
            assert [fill_of(i) for i in range(4)] == [b"d"] * 3 + [b"a"]
            # Errors on demand, and no longer.
            drive.tell("errors flush times=1")
            assert error_of(partial(os.fsync, fd)) == errno.EIO
            os.fsync(fd)
            drive.tell("errors write")
            assert write_pages(fd, b"e", 3) == 0
            drive.tell("errors off")
            assert write_pages(fd, b"e", 3) == 3
            for wrong in (
                "power of", "power off writes=0", "power off keep=2", "errors",
                "errors flush times=x", "write-cache maybe",
            ):  # fmt: skip
                drive.tell(wrong, ok=False)
        finally:
            os.close(fd)
    print("losing power: planned cut, lying flush, battery, errors")


def test_cut_after_a_flush(server: str, scratch: Path) -> None:
    """The power goes when the second flush is done; drives on one line lose it together."""
    beside = scratch / "beside"
    beside.mkdir()
    with Drive(server, scratch, 64 * MIB) as drive, Drive(server, beside, 64 * MIB) as other:
        drive.attach()
        fd = os.open(drive.loop, os.O_RDWR | os.O_DIRECT)
        try:
            drive.tell("destage pause")
            drive.tell("write-cache on")
            for joining in (drive, other):
                joining.tell(f"line {scratch}/line")
            drive.tell("power off flushes=2")
            for fill in (b"f", b"g"):
                assert write_pages(fd, fill, 1) == 1
                os.fsync(fd)
            assert drive.tell("state")["power"] == "off"
            cut = drive.tell("cut")
            assert (cut["lost"], cut["pieces"]) == ([], 0), cut
            assert other.tell("state")["power"] == "off"
            assert other.tell("cut")["at_ns"] == cut["at_ns"]
            drive.tell("power on")
            page = mmap.mmap(-1, 8192)
            os.preadv(fd, [page], 0)
            assert page[:1] == b"g"
            for wrong in (
                "line", "line relative", "line /nowhere/at/all", "power off writes=1 flushes=1",
                "power off follow writes=1", "power off follow within=1", "power off keep-first=x",
            ):  # fmt: skip
                drive.tell(wrong, ok=False)
        finally:
            os.close(fd)
    print("losing power: after a flush, and with the line")


def test_snapshot(drive: Drive) -> None:
    run("umount", drive.files)
    drive.tell("timing off")
    drive.tell("snapshot")
    run("mount", drive.loop, drive.files)
    fio(f"--filename={drive.files}/big", "--rw=write", "--bs=1m", "--size=300m", "--end_fsync=1")
    run("umount", drive.files)
    overlay = drive.tell("state")["overlay_bytes"]
    start = time.monotonic()
    drive.tell("restore")
    took = time.monotonic() - start
    print(f"restore: {overlay / MIB:.0f} MiB thrown away in {took * 1000:.0f} ms")
    run("blockdev", "--flushbufs", drive.loop)
    run("mount", drive.loop, drive.files)
    assert not (drive.files / "big").exists()
    assert (drive.files / "cut").exists()
    assert overlay >= 300 * MIB
    drive.tell("timing on")


def benchmark_parallelism(server: str, scratch: Path) -> None:
    with Drive(server, scratch, 256 * MIB, constant_latency_ns=5_000_000) as drive:
        drive.attach()
        for rw in ("randread", "randwrite"):
            job = fio(
                f"--filename={drive.loop}", f"--rw={rw}", "--bs=8k", "--ioengine=libaio",
                "--direct=1", "--iodepth=32", "--runtime=2", "--time_based",
            )  # fmt: skip
            iops = job["read" if rw == "randread" else "write"]["iops"]
            print(
                f"{rw}, 5 ms each, queue depth 32: {iops:.0f}/s, effective parallelism "
                f"{iops * 0.005:.1f}"
            )


def main() -> None:
    server = sys.argv[1]
    if os.geteuid() != 0:
        skip("not root")
    if not Path("/dev/fuse").exists():
        skip("no /dev/fuse")
    for tool in ("losetup", "mkfs.xfs", "fio", "unshare", "mount", "blockdev"):
        if shutil.which(tool) is None:
            skip(f"no {tool}")
    if os.environ.get("DRIVE_STACK_NAMESPACE") is None:
        probe = subprocess.run(["unshare", "-m", "true"], capture_output=True)
        if probe.returncode != 0:
            skip("no permission for a mount namespace")
        if subprocess.run(["losetup", "-f"], capture_output=True).returncode != 0:
            skip("no free loop device")
        os.environ["DRIVE_STACK_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])  # noqa: S606 - no shell

    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        with Drive(server, scratch, 768 * MIB) as drive:
            drive.attach()
            drive.format()
            test_synchronous_rate(drive, scratch)
            test_caches(drive)
            test_verify(drive)
            test_power_cut(drive)
            test_snapshot(drive)
            drive.tell("nonsense", ok=False)
        test_losing_power(server, scratch)
        test_cut_after_a_flush(server, scratch)
        benchmark_parallelism(server, scratch)
        mounts = Path("/proc/self/mounts").read_text()
        left = [line for line in mounts.splitlines() if directory in line]
        assert not left, left
        assert directory not in run("losetup", "-a"), "a loop device is left"
    print("nothing is left")


if __name__ == "__main__":
    main()
