"""A fleet's samples.jsonl is that of one machine, whoever dies; samples here take no time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fleetnet
import pytest
from fleethosts import PATIENCE, Hosts, inner

from wallab import paths
from wallab.files import digest
from wallab.fleet import contact
from wallab.record.samples import SAMPLES, SampleFile

pytestmark = pytest.mark.skipif(
    not os.environ.get("WALLAB_TEST_FLEET"),
    reason="starts many processes for minutes: set WALLAB_TEST_FLEET=1",
)

RUN = "benchmarks.fleetrun"
ROUNDS = "20"


def command(folder: Path, address: str, *options: str) -> list[str]:
    """Return the command of a coordinator."""
    return [sys.executable, "-m", RUN, str(folder), ROUNDS, address, *options]


def run(folder: Path, address: str, *options: str) -> str:
    """Measure a run; return what was said."""
    done = subprocess.run(
        command(folder, address, *options),
        cwd=paths.LAB, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The samples of one machine."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, "here")
    return (folder / SAMPLES).read_bytes()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """A scheduler without workers."""
    with Hosts(tmp_path) as started:
        yield started


def wait_for_samples(coordinator: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """Wait until the coordinator has written so many."""
    deadline = time.monotonic() + PATIENCE
    while not (folder / SAMPLES).exists() or (folder / SAMPLES).read_bytes().count(b"\n") < count:
        assert coordinator.poll() is None, (folder.parent / "log").read_text()
        assert time.monotonic() < deadline, (folder.parent / "log").read_text()
        time.sleep(0.01)


def test_a_fleet_has_the_bytes_of_one_machine(hosts: Hosts, whole: bytes, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        hosts.worker(name)
    hosts.wait_for("in the fleet", 3)
    messages = run(tmp_path / "run", hosts.address)
    assert (tmp_path / "run" / SAMPLES).read_bytes() == whole
    assert "precise enough early" in messages


def test_workers_that_come_late_and_go_early(hosts: Hosts, whole: bytes, tmp_path: Path) -> None:
    """None at first; one that is told to end; others that are killed, and come again."""
    folder = tmp_path / "run"
    coordinator = hosts.start(RUN, str(folder), ROUNDS, hosts.address, "--setup", "sleep .1")
    hosts.wait_for("no worker yet")
    first = hosts.worker("first")
    wait_for_samples(coordinator, folder, 4)
    second, third = hosts.worker("second"), hosts.worker("third")
    hosts.wait_for("in the fleet", 3)
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 130
    for kills, killed in enumerate((second, third, second), 1):
        wait_for_samples(coordinator, folder, 20 * kills)
        os.kill(inner(killed), signal.SIGKILL)
        hosts.wait_for("was killed by signal 9; it is started again", kills)
    assert coordinator.wait(PATIENCE) == 0, hosts.log
    assert (folder / SAMPLES).read_bytes() == whole


def test_the_scheduler_may_forget_everything(hosts: Hosts, whole: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hosts.worker("one")
    coordinator = hosts.start(RUN, str(folder), ROUNDS, hosts.address, "--setup", "sleep .1")
    for count in (10, 40):
        wait_for_samples(coordinator, folder, count)
        assert hosts.scheduler
        hosts.scheduler.kill()
        hosts.scheduler.wait()
        hosts.start_scheduler()
    assert coordinator.wait(PATIENCE) == 0, hosts.log
    assert (folder / SAMPLES).read_bytes() == whole
    hosts.wait_for("the scheduler is lost", 2)


def test_a_killed_coordinator_is_resumed(hosts: Hosts, whole: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hosts.worker("one", jobs=4)
    more: list[str] = []
    for count in (10, 50):
        words = (str(folder), ROUNDS, hosts.address, "--setup", "sleep .1", *more)
        coordinator = hosts.start(RUN, *words)
        wait_for_samples(coordinator, folder, count)
        coordinator.kill()
        coordinator.wait()
        more = ["--resume"]
    run(folder, hosts.address, "--resume")
    assert (folder / SAMPLES).read_bytes() == whole


def test_a_sample_that_kills_every_worker_fails_and_the_run_goes_on(
    hosts: Hosts, whole: bytes, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        hosts.worker(name, jobs=4)
    hosts.wait_for("in the fleet", 2)
    text = '"sync":"open_sync"},2,'
    run(tmp_path / "run", hosts.address, "--setup", f"poison {tmp_path}/killed {text}")
    samples = SampleFile(tmp_path / "run" / SAMPLES).read()
    failed = [sample for sample in samples if sample.state == "failed"]
    assert {(sample.cell["sync"], sample.round) for sample in failed} == {("open_sync", 2)}
    for sample in failed:
        assert sample.error.startswith("given up after 3 deaths: the worker "), sample.error
    assert (tmp_path / "killed").read_text().count("killed") >= 3


def test_a_host_that_cannot_leaves_and_others_go_on(
    hosts: Hosts, whole: bytes, tmp_path: Path
) -> None:
    full = hosts.worker("full")
    hosts.wait_for("in the fleet")
    folder = tmp_path / "run"
    coordinator = hosts.start(RUN, str(folder), ROUNDS, hosts.address, "--setup", "full full")
    reason = "leaves the fleet: [Errno 28] No space left on device"
    hosts.wait_for(f"full {reason}")
    assert full.wait(PATIENCE) == 3
    hosts.worker("roomy")
    assert coordinator.wait(PATIENCE) == 0, hosts.log
    assert (folder / SAMPLES).read_bytes() == whole
    assert f"worker: {reason}" in hosts.log


def test_a_sample_whose_emulator_always_ends_fails(hosts: Hosts, tmp_path: Path) -> None:
    hosts.worker("one", jobs=4)
    text = '"sync":"open_sync"},2,'
    run(tmp_path / "run", hosts.address, "--setup", f"ended {text}")
    samples = SampleFile(tmp_path / "run" / SAMPLES).read()
    failed = {sample.error for sample in samples if sample.state == "failed"}
    assert failed == {"given up after 3 deaths: the emulator ended: without a word, on one"}


def test_with_a_key_tls_is_spoken_and_nobody_else_gets_in(tmp_path: Path, whole: bytes) -> None:
    key, other = tmp_path / "fleet.pem", tmp_path / "other.pem"
    contact.make_key(key)
    contact.make_key(other)
    with Hosts(tmp_path, options=["--key", str(key)]) as hosts:
        hosts.worker("one")
        hosts.wait_for("in the fleet")
        run(tmp_path / "run", hosts.address, "--key", str(key))
        assert (tmp_path / "run" / SAMPLES).read_bytes() == whole
        assert "scheduler at tls://" in hosts.log
        for options in ([], ["--key", str(other)]):
            done = subprocess.run(
                command(tmp_path / "refused", hosts.address, *options),
                cwd=paths.LAB, capture_output=True, text=True, timeout=PATIENCE,
            )  # fmt: skip
            assert done.returncode
            assert "there is no scheduler at t" in done.stderr


def test_hosts_whose_links_are_cut(tmp_path: Path, whole: bytes) -> None:
    """Five, with a scheduler on one and the run on another; a short cut, one for good, deaths."""
    if reason := fleetnet.lacking():
        pytest.skip(reason)
    key = tmp_path / "fleet.pem"
    contact.make_key(key)
    folder = tmp_path / "run"
    with (
        fleetnet.Net(5) as net,
        Hosts(tmp_path, net.address(1), ["--key", str(key)], net.enter(1)) as hosts,
    ):
        workers = {
            host: hosts.worker(f"host{host}", enter=net.enter(host)) for host in (2, 3, 4, 5)
        }
        hosts.wait_for("in the fleet", 4)
        words = (str(folder), ROUNDS, hosts.address, "--key", str(key), "--setup", "sleep .5")
        coordinator = hosts.start(RUN, *words, enter=net.enter(1))
        wait_for_samples(coordinator, folder, 8)
        net.cut(2)
        net.cut(3)
        wait_for_samples(coordinator, folder, 12)
        net.mend(3)
        os.kill(inner(workers[4]), signal.SIGKILL)
        wait_for_samples(coordinator, folder, 30)
        assert hosts.scheduler
        hosts.scheduler.kill()
        hosts.scheduler.wait()
        hosts.start_scheduler()
        assert coordinator.wait(PATIENCE) == 0, hosts.log
        net.mend(2)
    assert (folder / SAMPLES).read_bytes() == whole


def test_parcels_come_as_they_are(hosts: Hosts, tmp_path: Path) -> None:
    """In pieces, with holes, and nothing that was not offered."""
    file = tmp_path / "parcel"
    with file.open("wb") as stream:
        stream.write(os.urandom(5 << 20))
        stream.seek(9 << 20)
        stream.write(b"end")
        stream.truncate(13 << 20)
    worker = hosts.worker("one")
    target = tmp_path / "target"
    options = ("--setup", f"fetch {digest.sha256(file)} {target}", "--parcel", str(file))
    run(tmp_path / "run", hosts.address, *options)
    assert target.read_bytes() == file.read_bytes()
    folder = tmp_path / "other"
    hosts.start(RUN, str(folder), ROUNDS, hosts.address, "--setup", f"fetch 0 {target}.0")
    assert worker.wait(PATIENCE) == 3
    hosts.wait_for("one leaves the fleet: the coordinator has no file 0")
