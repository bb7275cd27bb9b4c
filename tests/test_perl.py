"""The lab's Perl TAP tests: every variant × method as PostgreSQL's own test tools see it.

They run with the modules and programs of the installed trees, as the user that servers run as, in
namespaces of their own: nothing that they start or mount outlives them. WALLAB_TEST_SERVERS may
name another folder of installed variants than PostgreSQL 18's, such as build/17.11.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallab import paths
from wallab.machine import process
from wallab.record import series
from wallab.servers import buildsystem
from wallab.servers.builder import Builder, Server
from wallab.servers.patches import Patch, patches_of
from wallab.servers.source import Source

pytestmark = pytest.mark.stack

FILES = sorted((paths.LAB / "tests" / "t").glob("*.pl"))
FAULTS = paths.LAB / "tests" / "faults" / "wal_faults.c"
PATIENCE = 1200.0
"""Seconds that one file may take; each takes some 10."""

# /mnt is a place that every user reaches, wherever the checkout is. ramfs is a file system that
# refuses O_DIRECT.
NAMESPACE = """
mount -t tmpfs -o mode=755 tmpfs /mnt
cd /mnt
mkdir servers home tests refusing
mount --bind "$1" servers
mount --bind "$2" home
mount --bind "$3" tests
mount -t ramfs ramfs refusing && chmod 1777 refusing || rmdir refusing
cd home
shift 3
exec setpriv --reuid="$SERVER_USER" --regid="$SERVER_USER" --clear-groups "$@"
"""


def inside(servers: Path, home: Path, command: list[str], folder: str) -> tuple[int, str]:
    """Run a command of the tests; return its exit code and what it said.

    It sees the servers at /mnt/servers, and keeps what it makes below the folder of its home.
    """
    stock = "/mnt/servers/stock"
    environment = {
        "HOME": "/mnt/home",
        "INITDB_TEMPLATE": "/mnt/home/template",
        "LC_ALL": "C",
        "PATH": f"{stock}/bin:{os.environ['PATH']}",
        "PERL5LIB": f"{stock}/lib/pgxs/src/test/perl:/mnt/tests/perl",
        "PG_REGRESS": f"{stock}/lib/pgxs/src/test/regress/pg_regress",
        "PG_TEST_PORT_DIR": "/mnt/home/ports",
        "SERVER_USER": process.server_user() or "",
        "TESTDATADIR": f"/mnt/home/{folder}/data",
        "TESTDIR": f"/mnt/home/{folder}",
        "TESTLOGDIR": f"/mnt/home/{folder}/log",
        "TMPDIR": "/mnt/home/tmp",
        "WALLAB_FAULTY_WRITES": "/mnt/home/wal_faults.so",
        "WALLAB_REFUSING": "/mnt/refusing",
        "WALLAB_SERVERS": "/mnt/servers",
    }
    for path in (home / folder, home / folder / "log"):
        path.mkdir()
        process.own(path)
    log = home / f"{folder}.log"
    mounts = [str(servers), str(home), str(paths.LAB / "tests")]
    with log.open("wb") as output:
        child = process.spawn(
            ["unshare", *process.CONTAINER, "sh", "-eu", "-c", NAMESPACE, "sh", *mounts, *command],
            environment=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            code = child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = -signal.SIGALRM
        finally:
            process.end_group(child)
    return code, log.read_text(errors="replace")


def takes_direct_io(folder: Path) -> bool:
    """Whether files in the folder can be opened with O_DIRECT; a tmpfs could not before 6.6."""
    file = folder / "direct"
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:
        return False
    finally:
        file.unlink(missing_ok=True)
    return True


@pytest.fixture(scope="module")
def installed(request: pytest.FixtureRequest) -> Path:
    """The folder of installed variants."""
    if named := os.environ.get("WALLAB_TEST_SERVERS"):
        return Path(named).absolute()
    servers: dict[str, Server] = request.getfixturevalue("servers")
    return servers["stock"].path.parent


@pytest.fixture(scope="module")
def home(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the tests' clusters, with an empty cluster to make them from."""
    traced = ("strace", "-o", "/dev/null", "true")
    if reason := process.namespaces_refused(*process.CONTAINER, command=traced):
        pytest.skip(f"no namespaces or no strace here: {reason}")
    places = [tmp_path_factory.mktemp("perl"), paths.cache()]
    place = next((folder for folder in places if takes_direct_io(folder)), None)
    if place is None:
        pytest.skip(f"neither {places[0]} nor {places[1]} takes O_DIRECT")
    with tempfile.TemporaryDirectory(prefix="perl-", dir=place) as name:
        home = Path(name)
        (home / "tmp").mkdir()
        for path in (home, home / "tmp"):
            process.own(path)
        command = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", home / "wal_faults.so", FAULTS], check=True)
        initdb = ["initdb", "--no-sync", "--auth=trust", "--no-locale", "--encoding=UTF8",
                  "--wal-segsize=1", "-U", "wallab", "-D", "/mnt/home/template"]  # fmt: skip
        code, output = inside(installed, home, initdb, "initdb")
        assert code == 0, output
        yield home


@pytest.fixture(scope="module")
def without_pwritev(
    servers: dict[str, Server], source18: Source, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with gather-ring as on a platform that lacks pwritev(), and the tests' tools."""
    patches = [
        *patches_of(series.read(), "gather-ring", source18),
        Patch("no-pwritev", FAULTS.with_name("no-pwritev.patch")),
    ]
    system = buildsystem.choose("auto", source18)
    home = tmp_path_factory.mktemp("no-pwritev")
    (server,) = Builder(source18, system, home).build({"no-pwritev": patches})
    shutil.copytree(servers["stock"].path, server.path.with_name("stock"), symlinks=True)
    return server.path.parent


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_tap(installed: Path, home: Path, file: Path) -> None:
    prove = ["prove", "--norc", "--verbose", "--timer", f"/mnt/tests/t/{file.name}"]
    code, output = inside(installed, home, prove, file.stem)
    assert code == 0, output
    assert "Result: PASS" in output


@pytest.mark.parametrize("stem", ["004_small_buffers", "008_write_faults"])
def test_platform_without_pwritev(without_pwritev: Path, home: Path, stem: str) -> None:
    prove = ["prove", "--norc", "--verbose", "--timer", f"/mnt/tests/t/{stem}.pl"]
    code, output = inside(without_pwritev, home, prove, f"{stem}-no-pwritev")
    assert code == 0, output
    assert "no-pwritev: all rows are back" in output
