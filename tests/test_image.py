"""The container image, built and run for real where a machine has an engine."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import Engine, Result, engine, provide_base

from wallab import container, jsonfile, manifest, paths
from wallab.run import SAMPLES
from wallab.samples import SampleFile

pytestmark = [pytest.mark.timeout(7200)]

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
    *("--cap-add", "SYS_ADMIN"),
    *(word for device in container.DEVICES for word in ("--device", device)),
]


class Image:
    """A built image and how its containers are started."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name

    def run(self, *options: str | Path, command: tuple[str | Path, ...] = ()) -> Result:
        """Run a container to its end."""
        return self.engine.call(
            "run", "--rm", *self.engine.run_options, *options, self.name, *command, patience=1800
        )


@pytest.fixture(scope="module", params=["docker", "podman"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Each engine that this machine can have."""
    home = tmp_path_factory.mktemp(request.param)
    with engine(request.param, home) as found:
        provide_base(found, home)
        yield found


def build(engine: Engine, target: str) -> Image:
    """Build one of the two targets with the variants that the tests need."""
    name = f"wal-lab-test:{target}"
    made = engine.call(
        "build", *engine.run_options, "--target", target, "--build-arg", "VARIANTS=stock both",
        "-t", name, paths.LAB, patience=7000,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:] + made.stdout[-3000:]
    return Image(engine, name)


@pytest.fixture(scope="module")
def builder_image(running: Engine) -> Image:
    """The image with compilers; it comes first, since the other is made from it."""
    return build(running, "builder")


@pytest.fixture(scope="module")
def image(builder_image: Image) -> Image:
    """The image that measures."""
    return build(builder_image.engine, "lab")


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


def loops() -> set[str]:
    """The loop devices of the machine that are in use."""
    return {
        block.name
        for block in Path("/sys/block").glob("loop*")
        if (block / "loop" / "backing_file").exists()
    }


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
    before = loops()
    command = ("run-matrix", "tiny", "--preset", "smoke", "--matrix", "/matrix.toml")
    result = image.run(*RIGHTS, *volumes(shared), command=command)
    assert result.returncode == 0, result.stderr
    (folder,) = (shared / "results").iterdir()
    samples = SampleFile(folder / SAMPLES).read()
    assert [sample.state for sample in samples] == ["measured"] * 3  # stock has no open_direct
    assert manifest.load(folder).lab["commit"] == "unknown"
    for file in [folder, *folder.iterdir()]:
        assert (file.stat().st_uid, file.stat().st_gid) == (12345, 12346), file
    assert (folder / "table.txt").read_text() == result.stdout
    assert loops() <= before


def test_stop_leaves_nothing(image: Image, shared: Path) -> None:
    before = loops()
    started = image.engine.call(
        "run", "--detach", *image.engine.run_options, *RIGHTS, *volumes(shared), image.name,
        "run-matrix", "tiny", "--preset", "long", "--matrix", "/matrix.toml",
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    number = started.stdout.strip()
    try:
        deadline = time.monotonic() + 300
        while not [*(shared / "results").glob(f"*/{SAMPLES}")]:
            assert time.monotonic() < deadline, image.engine.call("logs", number).stderr
            time.sleep(0.2)
        assert image.engine.call("stop", "--time", "60", number).returncode == 0
        shown = image.engine.call("inspect", "--format", "{{.State.ExitCode}}", number)
        assert shown.stdout.strip() == "130"
        assert loops() <= before
    finally:
        image.engine.call("rm", "--force", number)


def test_psql(image: Image) -> None:
    result = image.run(command=("psql", "both", "-Atc", "SHOW wal_sync_method"))
    assert result.returncode == 0, result.stderr
    assert result.stdout == "fdatasync\n"


def test_what_needs_a_compiler_is_refused(image: Image) -> None:
    result = image.run(command=("build-variant", "committed"))
    assert result.returncode == 3
    assert "--target builder" in result.stderr


def test_own_patch(builder_image: Image, tmp_path: Path) -> None:
    patch = tmp_path / "v3-0001-foo.patch"
    patch.write_text(PATCH)
    result = builder_image.run(
        "-v", f"{patch}:/patch", command=("build-variant", "--patch", "/patch", "--name", "foo")
    )
    assert result.returncode == 0, result.stderr
    assert "foo: PostgreSQL 18" in result.stdout


def test_version_of_image_is_told(image: Image) -> None:
    shown = image.engine.call("inspect", "--format", "{{json .Config.Labels}}", image.name)
    labels = jsonfile.loads(shown.stdout, dict[str, str])
    assert labels["org.opencontainers.image.licenses"] == "PostgreSQL"
