"""The container image, built and run for real, by Docker and podman; CONTRIBUTING.md tells how."""

import hashlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import imagebase
import psutil
import pytest
from engine import Engine, Result, engine

from wallab import paths
from wallab.files import jsonfile
from wallab.machine import container, loop
from wallab.record import manifest
from wallab.record.samples import SAMPLES, SampleFile
from wallab.servers.builder import Server
from wallab.servers.source import Source
from wallab.virtual import rootfs

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not os.environ.get("WALLAB_TEST_IMAGE"),
        reason="builds the image, which takes minutes: set WALLAB_TEST_IMAGE=1",
    ),
]

MATRIX = """
[experiment.tiny]
title = "tiny"
source = "18"
workload = "tpcb-like"
rows = ["variant", "write_cache"]
column = "sync"
[experiment.tiny.axes]
variant = ["stock", "both"]
write_cache = ["off"]
sync = ["fdatasync", "open_direct"]
[experiment.tiny.drive.wal]
profile = "ata-2005"
size_mb = 1024
filesystem = "ext4"
[experiment.tiny.drive.data]
profile = "ata-2005"
size_mb = 1024
filesystem = "xfs"
write_cache = "on"
[experiment.tiny.settings]
max_wal_size = "64MB"
min_wal_size = "32MB"
[experiment.tiny.preset.smoke]
about = "one short round"
scale = 1
clients = 2
seconds = 1
warm_up_seconds = 0
rounds = 1
[experiment.tiny.preset.long]
about = "for as long as it is let"
scale = 1
clients = 2
seconds = 2
warm_up_seconds = 0
rounds = 200
"""

PATCH = f"""\
--- a/src/backend/access/transam/xlog.c
+++ b/src/backend/access/transam/xlog.c
@@ -1,5 +1,6 @@
+/* a reviewer's own line */
 /*{"-" * 73}
  *
  * xlog.c
  *\t\tPostgreSQL write-ahead log manager
  *
"""

RIGHTS = [
    *("--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined"),
    *(word for device in container.DEVICES for word in ("--device", device)),
    # A machine on which others have loop devices gives higher ones.
    *(
        word
        for device in sorted(Path("/dev").glob("loop[0-9]*"))
        if str(device) not in container.DEVICES
        for word in ("--device", str(device))
    ),
]
BUILDER, LAB = "wal-lab-test:builder", "wal-lab-test:lab"
RUNTIME = f"/run/wal-lab-{secrets.token_hex(4)}"
"""The containers' own, by which their loop devices are told from the machine's others."""


class Image:
    """A built image and how its containers are started."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name

    def line(self, *options: str | Path) -> list[str | Path]:
        """What starts a container, up to the image's command."""
        runtime = ("-e", f"WALLAB_RUNTIME={RUNTIME}")
        network = () if "--network" in options else self.engine.network
        return ["run", *network, *runtime, *options, self.name]

    def run(self, *options: str | Path, command: tuple[str | Path, ...] = ()) -> Result:
        """Run a container to its end."""
        return self.engine.call(*self.line("--rm", *options), *command, patience=1200)


def build(engine: Engine, target: str, *arguments: str, **environment: str) -> Result:
    """Build one of the Dockerfile's targets."""
    made = engine.call(
        "build", *engine.network, "--target", target, *arguments, "-t", f"wal-lab-test:{target}",
        paths.LAB, patience=3000, **environment,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:] + made.stdout[-3000:]
    return made


@pytest.fixture(scope="module")
def docker(
    servers: dict[str, Server], source18: Source, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Docker with the image in it; it was built with what this machine has compiled before."""
    with engine("docker") as docker:
        imagebase.provide_base(docker)
        imagebase.provide_cache(docker, source18, tmp_path_factory.mktemp("cache"))
        arguments = [
            "--build-arg", f"BASE={imagebase.BASE}", "--build-arg", f"CACHE={imagebase.CACHE}",
        ]  # fmt: skip
        # One's own engine is Debian's, which has BuildKit built in.
        kit = {"DOCKER_BUILDKIT": "1"} if docker.own else {}
        with imagebase.served_wheels(docker) as wheels:
            for target in ("builder", "lab"):
                build(docker, target, *arguments, *wheels, **kit)
        try:
            yield docker
        finally:
            if not docker.own:
                names = (BUILDER, LAB, imagebase.BASE, imagebase.CACHE)
                docker.call("image", "rm", "--force", *names)


@pytest.fixture(scope="module")
def podman(docker: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Podman with the same image."""
    with engine("podman") as podman:
        imagebase.provide_base(podman)
        for name in (BUILDER, LAB):
            file = tmp_path_factory.mktemp("image") / "image.tar"
            saved = docker.call("save", "--output", file, name)
            assert saved.returncode == 0, saved.stderr
            loaded = podman.call("load", "--input", file)
            assert loaded.returncode == 0, loaded.stderr
            file.unlink()
        yield podman


@pytest.fixture(scope="module", params=["docker", "podman"])
def running(request: pytest.FixtureRequest) -> Engine:
    """Each engine, with the image in it."""
    chosen: Engine = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def builder_image(running: Engine) -> Image:
    """The image with compilers."""
    return Image(running, BUILDER)


@pytest.fixture
def image(running: Engine) -> Image:
    """The image that measures."""
    return Image(running, LAB)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A results folder of somebody who is not root, with a small matrix beside it."""
    (tmp_path / "matrix.toml").write_text(MATRIX)
    results = tmp_path / "results"
    results.mkdir()
    os.chown(results, 12345, 12346)
    return tmp_path


def volumes(shared: Path) -> list[str]:
    """The options that give a container the results folder and the matrix."""
    return [
        "-v", f"{shared}/results:/results", "-v", f"{shared}/matrix.toml:/matrix.toml:ro",
    ]  # fmt: skip


def loops() -> list[Path]:
    """The loop devices that the containers have."""
    devices = sorted(Path("/dev").glob("loop[0-9]*"))
    return [device for device in devices if loop.name_of(device).startswith(RUNTIME)]


def belongs(folder: Path, owner: tuple[int, int]) -> None:
    """Assert that everything in the folder is the owner's."""
    for file in [folder, *folder.rglob("*")]:
        assert (file.stat().st_uid, file.stat().st_gid) == owner, file


def test_without_rights_it_says_how_to_be_started(image: Image) -> None:
    result = image.run()
    assert result.returncode == 3
    assert "--cap-add SYS_ADMIN" in result.stderr
    assert "--device /dev/loop-control" in result.stderr


def test_unknown_command(image: Image) -> None:
    result = image.run(command=("tabluate",))
    assert result.returncode == 2
    assert "run-matrix" in result.stderr


def test_matrix_inside_results_outside(image: Image, shared: Path) -> None:
    command = ("run-matrix", "tiny", "--preset", "smoke", "--matrix", "/matrix.toml")
    result = image.run(*RIGHTS, *volumes(shared), command=command)
    assert result.returncode == 0, result.stderr
    (folder,) = (shared / "results").iterdir()
    samples = SampleFile(folder / SAMPLES).read()
    assert [sample.state for sample in samples] == ["measured"] * 3  # stock has no open_direct
    # Without CAP_SYS_PTRACE, too, the kernel tells how the WAL is open.
    assert {flags for sample in samples for flags in sample.open_flags} <= {
        "none",
        "O_DIRECT|O_SYNC",
    }
    assert any(sample.open_flags for sample in samples)
    assert manifest.load(folder).lab["commit"] == "unknown"
    belongs(shared / "results", (12345, 12346))
    assert (folder / "table.txt").read_text() == result.stdout
    assert not loops()
    again = image.run(*volumes(shared), command=("tabulate", "latest"))
    assert (again.returncode, again.stdout) == (0, result.stdout), again.stderr


def test_directory_takes_no_rights(image: Image, shared: Path) -> None:
    command = ("run-matrix", "tiny", "--preset", "smoke", "--matrix", "/matrix.toml")
    real = ("--drive", "directory", "--directory", "/results", "--variants", "stock")
    result = image.run(*volumes(shared), command=(*command, *real))
    assert result.returncode == 0, result.stderr
    (folder,) = (shared / "results").iterdir()
    assert [sample.state for sample in SampleFile(folder / SAMPLES).read()] == ["measured"]
    belongs(shared / "results", (12345, 12346))


def test_virtual_time_takes_no_rights(
    image: Image, shared: Path, servers: dict[str, Server]
) -> None:
    """Not even those that an engine gives to every container; and it is the same twice."""
    command: tuple[str | Path, ...] = (
        "run-matrix", "tiny", "--preset", "smoke", "--matrix", "/matrix.toml",
        "--machine", "virtual", "--seed", "7",
    )  # fmt: skip
    nothing = ("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    os.chown(shared / "results", 0, 0)
    result = image.run(*nothing, *volumes(shared), command=command)
    assert result.returncode == 0, result.stderr
    (folder,) = (shared / "results").iterdir()
    samples = SampleFile(folder / SAMPLES).read()
    assert [sample.state for sample in samples] == ["measured"] * 3
    assert "virtual" in result.stdout
    again = image.run(*nothing, *volumes(shared), command=("reproduce", "latest"))
    assert again.returncode == 0, again.stderr + again.stdout
    assert again.stdout.count(": the same ") == 3
    # In another folder, and without symbols there: to a guest it is the server of here.
    known = manifest.load(folder)
    assert known.virtual is not None
    for name, digest in known.virtual.servers.items():
        if known.builds[name].key == servers[name].build.key:
            assert rootfs.server(servers[name].path).sha256 == digest, name


def wait_for_samples(shared: Path, runs: Callable[[], bool]) -> None:
    """Wait until the container measures; or no longer than it runs."""
    deadline = time.monotonic() + 600
    while not [*(shared / "results").glob(f"*/{SAMPLES}")]:
        if not runs() or time.monotonic() > deadline:
            break
        time.sleep(0.5)


LONG = ("run-matrix", "tiny", "--preset", "long", "--matrix", "/matrix.toml")


def test_stop_leaves_nothing(image: Image, shared: Path) -> None:
    started = image.engine.call(*image.line("--detach", *RIGHTS, *volumes(shared)), *LONG)
    assert started.returncode == 0, started.stderr
    number = started.stdout.strip()

    def runs() -> bool:
        state = image.engine.call("inspect", "--format", "{{.State.Running}}", number)
        return state.stdout.strip() == "true"

    try:
        wait_for_samples(shared, runs)
        stopped = image.engine.call("stop", "--time", "300", number)
        assert stopped.returncode == 0, stopped.stderr
        exit_code = image.engine.call("inspect", "--format", "{{.State.ExitCode}}", number)
        assert exit_code.stdout.strip() == "130", image.engine.call("logs", number).stderr
        belongs(shared / "results", (12345, 12346))
        assert not loops()
    finally:
        image.engine.call("rm", "--force", number)


def test_interrupt_leaves_nothing(image: Image, shared: Path) -> None:
    with image.engine.start(*image.line("--rm", *RIGHTS, *volumes(shared)), *LONG) as child:
        try:
            wait_for_samples(shared, lambda: child.poll() is None)
            # As a terminal does it, to the engine's own program.
            for client in psutil.Process(child.pid).children() or [psutil.Process(child.pid)]:
                client.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=300)
        finally:
            child.kill()
    assert child.returncode == 130, errors
    assert "interrupted" in errors
    assert not loops()


def test_power_cut(docker: Engine, shared: Path) -> None:
    chosen = ("variant=both", "write_cache=off", "sync=fdatasync", "filesystem=ext4")
    cell = [word for choice in chosen for word in ("--cells", choice)]
    once = ("--matrix", "/matrix.toml", "--cuts", "1", "--fault", "kill-postmaster")
    command = ("power-cut", "tiny", *once, *cell)
    result = Image(docker, LAB).run(*RIGHTS, *volumes(shared), command=command)
    assert result.returncode == 0, result.stderr
    assert "safe 1" in result.stdout
    assert not loops()


def test_psql(image: Image) -> None:
    result = image.run(command=("psql", "both", "-Atc", "SHOW wal_sync_method"))
    assert result.returncode == 0, result.stderr
    assert result.stdout == "fdatasync\n"


def test_other_commands(image: Image) -> None:
    result = image.run(command=("drive", "profiles"))
    assert "ata-2005" in result.stdout, result.stderr
    result = image.run(command=("bash", "-c", "id --user wallab && pwd"))
    assert result.stdout.splitlines()[1:] == ["/opt/wal-lab"], result.stderr


@pytest.mark.parametrize("command", [("build-variant", "both", "--source", "17"), ("test",)])
def test_what_needs_a_compiler_is_refused(image: Image, command: tuple[str, ...]) -> None:
    result = image.run(command=command)
    assert result.returncode == 3
    assert "--target builder" in result.stderr


def test_own_patch_is_built_and_measured(builder_image: Image, shared: Path) -> None:
    patch = shared / "v3-0001-foo.patch"
    patch.write_text(PATCH)
    volume = f"wal-lab-test-{secrets.token_hex(4)}"
    kept = ("-v", f"{volume}:/opt/wal-lab/build")
    try:
        given = (*kept, "-v", f"{patch}:/patch:ro")
        command: tuple[str, ...] = ("build-variant", "--patch", "/patch", "--name", "foo")
        refused = builder_image.run(*given, command=command)
        assert refused.returncode == 3
        assert "--network none" in refused.stderr
        built = builder_image.run("--network", "none", *given, command=command)
        assert built.returncode == 0, built.stderr
        assert "foo: PostgreSQL 18" in built.stdout
        command = ("run-matrix", "tiny", "--preset", "smoke", "--matrix", "/matrix.toml")
        result = builder_image.run(
            *RIGHTS, "--network", "none", *kept, *volumes(shared),
            command=(*command, "--variants", "stock,foo"),
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    finally:
        builder_image.engine.call("volume", "rm", "--force", volume)
    (folder,) = (shared / "results").iterdir()
    samples = SampleFile(folder / SAMPLES).read()
    # Neither has open_direct.
    assert sorted(sample.cell["variant"] for sample in samples) == ["foo", "stock"]
    assert {sample.state for sample in samples} == {"measured"}
    (applied,) = manifest.load(folder).builds["foo"].patches
    assert applied.sha256 == hashlib.sha256(PATCH.encode()).hexdigest()
    assert not loops()


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_other_builders_build_it_too(name: str, request: pytest.FixtureRequest) -> None:
    """The classic builder and buildah: what compiling made is there, so that it takes seconds."""
    engine: Engine = request.getfixturevalue(name)
    build(
        engine, "pruned", "--build-arg", f"BASE={BUILDER}",
        "--build-arg", f"CACHE={imagebase.BASE}",
        DOCKER_BUILDKIT="0",
    )  # fmt: skip


def test_version_of_image_is_told(image: Image) -> None:
    result = image.engine.call("inspect", "--format", "{{json .Config.Labels}}", image.name)
    labels = jsonfile.loads(result.stdout, dict[str, str])
    assert labels["org.opencontainers.image.licenses"] == "PostgreSQL"
