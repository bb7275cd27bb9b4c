"""Container engines for the tests of the image: one that runs, or one that a test starts.

A test's own engine shares nothing with another one on the machine, and lives in namespaces of
processes and mounts, so that it ends with the test, however that ends. Its network is the host's.
"""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import enginepackages
import psutil
import pytest

from wallab.machine import ledger, process
from wallab.machine.ledger import Ledger
from wallab.machine.scratch import Folder

GROUPS = ("docker", "libpod_parent")
"""Control groups that engines make for their containers, in every hierarchy."""

Result = subprocess.CompletedProcess[str]


class Engine:
    """Docker or podman, with what its commands need in front and around."""

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = command
        self.own = environment is not None
        """Whether the test started it."""
        self.environment = environment or dict(os.environ)
        self.network = ["--network=host"] if self.own else []

    def call(self, *arguments: str | Path, patience: float = 600, **environment: str) -> Result:
        """Run one of the engine's commands; its output is kept apart from its messages."""
        with self.start(*arguments, **environment) as child:
            try:
                out, err = child.communicate(timeout=patience)
            except BaseException:
                child.kill()
                raise
            return Result(child.args, child.returncode, out, err)

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Start one of the engine's commands; its output goes to pipes."""
        return subprocess.Popen(
            [*self.command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment | environment,
        )

    def answers(self) -> bool:
        """Whether it can be talked to."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            return self.call("info", patience=60).returncode == 0
        return False


@contextlib.contextmanager
def namespace(environment: dict[str, str]) -> Iterator[list[str]]:
    """Make namespaces of processes and mounts; yield what enters them, in front of a command.

    All that is started there ends with this process.
    """
    # Orphans of the engine are this process's, and the kernel reaps them while SIGCHLD is ignored.
    first = process.spawn(
        ["unshare", *process.CONTAINER, "sh", "-c", "trap '' CHLD; exec sleep infinity"],
        environment=environment,
    )
    inside: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + 60
        while not (inside and inside[0].name() == "sleep"):
            if first.poll() is not None or time.monotonic() > deadline:
                pytest.skip("no namespaces of processes can be made here, which engines take")
            time.sleep(0.05)
            inside = psutil.Process(first.pid).children()
        yield ["nsenter", "--pid", "--mount", "--target", str(inside[0].pid), "--"]
    finally:
        process.end_group(first)
        with contextlib.suppress(psutil.Error):
            for member in inside:
                member.wait(60)


def _groups() -> set[Path]:
    """The control groups of engines on this machine, innermost first."""
    hierarchies = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")]
    tops = [hierarchy / name for hierarchy in hierarchies for name in GROUPS]
    return {
        Path(folder) for top in tops if top.is_dir() for folder, _, _ in os.walk(top, topdown=False)
    }


@contextlib.contextmanager
def _folders(name: str) -> Iterator[tuple[Path, Path]]:
    """Yield a folder for an engine's data and one for its sockets; both go at the end."""
    for _ in ledger.clear_dead():
        pass
    owned = Ledger.open(f"image-{name}-{os.getpid()}")
    home = enginepackages.home() / f"{name}-{os.getpid()}"
    groups = _groups()
    try:
        owned.make(Folder(home))
        yield home, owned.folder
    finally:
        for group in sorted(_groups() - groups, reverse=True):
            with contextlib.suppress(OSError):
                group.rmdir()
        owned.close()


@contextlib.contextmanager
def _own_docker() -> Iterator[Engine]:
    """Start a Docker engine."""
    environment = enginepackages.environment(enginepackages.provide())
    with _folders("docker") as (home, run), namespace(environment) as enter:
        environment["DOCKER_CONFIG"] = str(home / "client")
        socket = f"unix://{run / 'docker.sock'}"
        (home / "daemon.json").write_text("{}")
        log = home / "log"
        with log.open("wb") as output:
            daemon = process.spawn(
                [*enter, "dockerd", "--config-file", home / "daemon.json", "--host", socket,
                 "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none",
                 "--userland-proxy=false", "--storage-driver=overlay2", "--log-level=warn",
                 "--data-root", home / "data", "--exec-root", run / "exec",
                 "--pidfile", run / "pid"],
                environment=environment, stdout=output, stderr=output,
            )  # fmt: skip
        engine = Engine("docker", [*enter, "docker", "--host", socket], environment)
        try:
            deadline = time.monotonic() + 120
            while not engine.answers():
                if daemon.poll() is not None or time.monotonic() > deadline:
                    last = log.read_text(errors="replace").strip().splitlines()[-1:]
                    pytest.skip(f"no Docker engine can be started here: {' '.join(last)}")
                time.sleep(0.2)
            yield engine
        finally:
            # dockerd ends its containers, and with the namespace ends whatever is left.
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(daemon.pid).children():
                    child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(60)
            process.end_group(daemon)


def _configure_podman(home: Path, run: Path, environment: dict[str, str]) -> None:
    """Write podman's configuration below its home folder, where it looks first."""

    def program(name: str) -> str:
        return shutil.which(name, path=environment["PATH"]) or name

    # Without CAP_SYS_RESOURCE no limit can be raised.
    limits = [
        f"{name}={hard}:{hard}"
        for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
        if (hard := resource.getrlimit(number)[1]) > 0
    ]
    quoted = json.dumps
    folder = home / ".config" / "containers"
    folder.mkdir(parents=True)
    (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (folder / "registries.conf").write_text("unqualified-search-registries = []\n")
    (folder / "storage.conf").write_text(
        '[storage]\ndriver = "overlay"\n'
        f"graphroot = {quoted(str(home / 'store'))}\nrunroot = {quoted(str(run / 'storage'))}\n"
    )
    (folder / "containers.conf").write_text(
        "[containers]\n"
        f"default_ulimits = {quoted(limits)}\n"
        "[network]\n"
        'network_backend = "cni"\n'
        "[engine]\n"
        'runtime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        'lock_type = "file"\n'
        f"conmon_path = [{quoted(program('conmon'))}]\n"
        f"tmp_dir = {quoted(str(run / 'podman'))}\n"
        "[engine.runtimes]\n"
        f"runc = [{quoted(program('runc'))}]\n"
    )
    (home / "tmp").mkdir()
    environment |= {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
    }


@contextlib.contextmanager
def _own_podman() -> Iterator[Engine]:
    """Make podman run with a store of its own."""
    environment = enginepackages.environment(enginepackages.provide())
    with _folders("podman") as (home, run), namespace(environment) as enter:
        _configure_podman(home, run, environment)
        engine = Engine("podman", [*enter, "podman"], environment)
        info = engine.call("info", patience=120)
        if info.returncode:
            pytest.skip(f"podman does not run here: {info.stderr.strip()[-300:]}")
        yield engine


@contextlib.contextmanager
def engine(name: str) -> Iterator[Engine]:
    """An engine of that name; the test is skipped, with the reason, where there can be none."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if name == "docker" and (running := Engine("docker", ["docker"])).answers():
        yield running
    else:
        with _own_docker() if name == "docker" else _own_podman() as started:
            yield started
