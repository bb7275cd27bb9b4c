"""Container engines for the tests of the image: one that runs, or one that a test starts."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BASE = "debian:bookworm-slim"


class Engine:
    """Docker or podman, with what its commands need in front."""

    def __init__(self, command: list[str], *, host_network: bool) -> None:
        self.command = command
        self.run_options = ["--network=host"] if host_network else []

    def call(self, *arguments: str | Path, patience: float = 600) -> "Result":
        """Run one of the engine's commands; its output is kept apart from its messages."""
        return subprocess.run(
            [*self.command, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=patience,
        )


Result = subprocess.CompletedProcess[str]


def _answers(command: list[str]) -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run([*command, "info"], capture_output=True, timeout=60).returncode == 0
    return False


@contextlib.contextmanager
def _own_daemon(home: Path) -> Iterator[Engine]:
    """Start a Docker engine that shares nothing with another one on the machine."""
    socket = home / "docker.sock"
    log = (home / "log").open("wb")
    daemon = subprocess.Popen(
        ["dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none",
         "--data-root", home / "data", "--exec-root", home / "exec", "-p", home / "pid",
         "-H", f"unix://{socket}"],
        stdout=log, stderr=log,
    )  # fmt: skip
    try:
        engine = Engine(["docker", "-H", f"unix://{socket}"], host_network=True)
        deadline = time.monotonic() + 60
        while not _answers(engine.command):
            if daemon.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"no Docker engine can be started here; {home / 'log'} tells why")
            time.sleep(0.5)
        yield engine
    finally:
        daemon.terminate()
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        log.close()


@contextlib.contextmanager
def engine(name: str, home: Path) -> Iterator[Engine]:
    """An engine of that name; the test is skipped, with the reason, where there can be none."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if name == "podman":
        if not shutil.which("podman"):
            pytest.skip("no podman on this machine")
        store = ["--root", str(home / "store"), "--runroot", str(home / "run")]
        runtime = ["--runtime", "/usr/sbin/runc"] if Path("/usr/sbin/runc").exists() else []
        command = ["podman", *store, *runtime]
        if not _answers(command):
            pytest.skip("podman does not work on this machine")
        yield Engine(command, host_network=True)
    elif _answers(["docker"]):
        yield Engine(["docker"], host_network=False)
    elif not shutil.which("docker") or not shutil.which("dockerd"):
        pytest.skip("no Docker engine runs here, and there is no dockerd to start")
    else:
        with _own_daemon(home) as started:
            yield started


def provide_base(engine: Engine, home: Path) -> None:
    """Have the base image: from a registry, else made by debootstrap from Debian's packages."""
    if engine.call("image", "inspect", BASE).returncode == 0:
        return
    if engine.call("pull", "--quiet", BASE).returncode == 0:
        return
    if not shutil.which("debootstrap"):
        pytest.skip(f"{BASE} cannot be pulled, and there is no debootstrap to make it")
    root = home / "base"
    command = ["debootstrap", "--variant=minbase", "bookworm", str(root)]
    subprocess.run(command, check=True, capture_output=True, timeout=1800)
    packed = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
    imported = subprocess.run(
        [*engine.command, "import", "-", BASE], stdin=packed.stdout, capture_output=True
    )
    assert packed.wait() == 0
    assert imported.returncode == 0, imported.stderr
    shutil.rmtree(root)
