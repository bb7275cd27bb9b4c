"""What a stranger's patch can do in its build: nothing that outlives it, and nothing elsewhere.

The builds are real ones, of a source with a configure script and a Makefile of a few lines.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import psutil
import pytest
import reachable

from benchmarks.smallsource import BUILD, INSTALL, TREE, adding, packed
from wallab import paths
from wallab.command import build_variant, power_cut, run_matrix
from wallab.errors import LabError, MachineError
from wallab.files import foreign
from wallab.machine import ledger, memorygroup, provision, sandbox
from wallab.machine.sandbox import Limits, Sandbox
from wallab.servers import builder, source
from wallab.servers.builder import Builder
from wallab.servers.buildsystem import Autoconf
from wallab.servers.patches import Patch

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root, to become other users")

SMALL = Limits(
    memory=200 << 20,
    processes=60,
    seconds=60,
    disk=40 << 20,
    files=3000,
    output=1 << 20,
    scratch=10 << 20,
)

Make = Callable[[str, str], builder.Server]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody can reach, with a cache, and small limits."""
    monkeypatch.delenv(sandbox.SETTING, raising=False)
    monkeypatch.setattr(sandbox, "default_limits", lambda clusters=0: SMALL)
    with reachable.folder("wal-lab-sandbox-") as base:
        monkeypatch.setenv("WALLAB_CACHE", str(base / "cache"))
        yield base


@pytest.fixture(params=["bwrap", "container", "none"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, place: Path) -> str:
    """Each kind of sandbox: here, in a container that has no bubblewrap, and without any."""
    assert place
    wanted = str(request.param)
    if wanted == "bwrap" and (reason := sandbox.refused()):
        pytest.skip(f"no bubblewrap here: {reason}")
    if wanted == "container":
        monkeypatch.setattr(sandbox, "refused", lambda guest=True: "not here")
        monkeypatch.setattr(sandbox, "_network", lambda: "")
        monkeypatch.setenv("WALLAB_IMAGE", "builder")
    if wanted == "none":
        monkeypatch.setenv(sandbox.SETTING, "1")
    if wanted != "bwrap":
        let_python_be_reached(monkeypatch)
    return wanted


def let_python_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the machine's Python where the tests' own is in somebody's home."""
    if not ROOT or all(p.stat().st_mode & 1 for p in Path(sys.executable).resolve().parents):
        return
    system = Path("/usr/bin/python3")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not system.resolve().name.endswith(version):
        pytest.skip(f"needs a Python {version} that every user can reach")
    for name, value in (("executable", system), ("prefix", "/usr"), ("base_prefix", "/usr")):
        monkeypatch.setattr(sys, name, str(value))


@pytest.fixture
def bwrap(place: Path) -> None:
    """Skip where bubblewrap makes no sandbox."""
    assert place
    if reason := sandbox.refused():
        pytest.skip(f"no bubblewrap here: {reason}")


@pytest.fixture
def tree(place: Path) -> source.Source:
    """The small source as a tarball."""
    return source.resolve(str(packed(place)))


@pytest.fixture
def make(place: Path, tree: source.Source) -> Make:
    """Build a stranger's patch that adds lines to a script of the tree."""

    def build(file: str, lines: str) -> builder.Server:
        patch = place / "theirs.patch"
        patch.write_text(adding(file, lines))
        maker = Builder(tree, Autoconf(15), place / "servers")
        (server,) = maker.build({"theirs": [Patch("theirs", patch)]})
        return server

    return build


def kept(place: Path) -> list[Path]:
    """The installed servers, and what is on the way to be one."""
    return sorted((place / "servers").glob("*/*"))


def log_of(place: Path) -> str:
    """What the build printed."""
    (file,) = place.glob("cache/trees/*/theirs.log")
    return file.read_text(errors="replace")


LONG = f"3{os.getpid()}"
"""Seconds that no other process sleeps."""


def left(place: Path) -> list[list[str]]:
    """The command lines of what builds of this test still run, wherever that is."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if LONG in line or any(f"{place}/" in word for word in line)]


def test_server_is_built_and_told(kind: str, make: Make, place: Path) -> None:
    server = make(BUILD, "id -un >who; pwd >where")
    assert server.build.sandbox == kind
    done = subprocess.run([server.path / "bin/postgres"], capture_output=True, text=True)
    assert done.stdout == "a server\n"
    assert (server.path / "lib/libpq.so.5").readlink() == Path("libpq.so.5.15")
    for file in (server.path, *server.path.rglob("*")):
        assert file.lstat().st_uid == os.geteuid()
    # Nothing of a stranger's tree is left.
    (home,) = place.glob("cache/trees/*")
    assert not (home / "guest").exists()


@pytest.mark.usefixtures("kind")
@needs_root
def test_file_of_roots_is_not_read(make: Make, place: Path) -> None:
    secret = place / "secret"
    secret.write_text("of root's alone")
    secret.chmod(0o600)
    with pytest.raises(LabError, match=r"secret: (Permission denied|No such file or directory)"):
        make(BUILD, f"cat {secret}")
    assert "of root's alone" not in log_of(place)
    assert kept(place) == []


@pytest.mark.usefixtures("kind")
@needs_root
def test_nothing_is_written_elsewhere(make: Make, place: Path) -> None:
    victim = place / "victim"
    victim.write_text("as it was")
    (place / "servers").mkdir()
    others = [place / name for name in ("new", "cache/new", "cache/ccache/new", "servers/new")]
    lines = "\n".join(
        f"echo changed >{file} || echo ERROR: {file.name} {file.parent.name}"
        for file in (victim, *others)
    )
    with pytest.raises(LabError) as refusal:
        make(BUILD, f"{lines}\nexit 1")
    assert str(refusal.value).count("ERROR") == 1 + len(others)
    assert victim.read_text() == "as it was"
    assert not any(file.exists() for file in others)


@pytest.mark.usefixtures("bwrap")
def test_machine_is_read_only_and_homes_are_not_there(make: Make) -> None:
    with pytest.raises(LabError, match=r"/usr/x'?: (Read-only file system|Permission denied)"):
        make(BUILD, "touch /usr/x")
    server = make(INSTALL, 'ls -A / "$HOME" /root /run /home >"$target/seen" 2>&1 || true')
    seen = (server.path / "seen").read_text()
    assert "usr" in seen.split()
    assert ".bashrc" not in seen
    assert "'/run': No such file" in seen


@pytest.mark.usefixtures("bwrap")
def test_labs_own_folders_are_not_seen(
    make: Make, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where programs are shown around them, as with a lab in /opt."""
    monkeypatch.setattr(sandbox, "_SHOWN", (*sandbox._SHOWN, str(place)))
    for name in ("RESULTS", "BUILD"):
        monkeypatch.setattr(paths, name, place / name)
        (place / name).mkdir()
        (place / name / "figures").write_text("mine")
    (place / "beside").write_text("a program")
    server = make(INSTALL, f'ls -R {place} >"$target/seen"')
    seen = (server.path / "seen").read_text().split()
    assert "beside" in seen
    assert "BUILD" in seen
    assert "figures" not in seen


@pytest.mark.usefixtures("bwrap")
def test_network_is_not_reached(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
        call = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        with pytest.raises(LabError, match="Connection refused"):
            make(BUILD, f'/usr/bin/python3 -c "{call}" 2>&1 | sed s/^Conn/ERROR:\\ Conn/; exit 1')
        with pytest.raises(LabError, match="Network is unreachable"):
            make(BUILD, f'/usr/bin/python3 -c "{call.replace("127.0.0.1", "192.0.2.1")}"')


def test_variables_of_the_user_are_not_seen(
    kind: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kind
    monkeypatch.setenv("SECRET_TOKEN", "do-not-tell")
    server = make(INSTALL, 'cat /proc/*/environ >"$target/seen" 2>/dev/null || true')
    seen = (server.path / "seen").read_bytes()
    assert b"PATH=" in seen
    assert b"do-not-tell" not in seen


@pytest.mark.usefixtures("kind")
@needs_root
def test_forks_end(make: Make, place: Path) -> None:
    with pytest.raises(LabError, match=r"Cannot fork(.|\n)*a build may have 60 processes"):
        make(BUILD, "bomb() { bomb | bomb & }\nbomb; i=0\n"
             f"while test $i -lt 200; do sleep {LONG} & i=$((i+1)); done; wait")  # fmt: skip
    assert kept(place) == []
    assert left(place) == []


@pytest.mark.usefixtures("kind")
def test_disk_is_not_filled(make: Make, place: Path) -> None:
    with pytest.raises(LabError, match=r"stopped, since it wrote more than 40 MB|File size limit"):
        make(BUILD, "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=f$i bs=1M count=20; done;"
             "sleep 30")  # fmt: skip
    with pytest.raises(LabError, match=r"stopped, since it made more than 3,000 files"):
        make(BUILD, "mkdir m; cd m; seq 5000 | xargs touch; sleep 30")
    assert not list(place.glob("cache/trees/*/guest"))


@pytest.mark.usefixtures("kind")
def test_one_file_has_an_end(make: Make) -> None:
    with pytest.raises(LabError, match=r"File too large|File size limit|wrote more than"):
        make(BUILD, "dd if=/dev/zero of=f bs=1M count=200")


@pytest.mark.usefixtures("bwrap")
def test_memory_has_an_end(make: Make) -> None:
    with pytest.raises(LabError, match=r"more than 200 MB of memory|MemoryError"):
        make(BUILD, "/usr/bin/python3 -c 'x = bytearray(600 << 20)'")


@pytest.mark.usefixtures("kind")
def test_time_has_an_end(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    short = msgspec.structs.replace(SMALL, seconds=2.0)
    monkeypatch.setattr(sandbox, "default_limits", lambda clusters=0: short)
    with pytest.raises(LabError, match=r"building theirs: stopped, since it ran for more than 2 s"):
        make(BUILD, "sleep 600")


@pytest.mark.usefixtures("bwrap")
def test_command_that_closed_its_output_is_looked_after(place: Path) -> None:
    (place / "work").mkdir()
    os.chown(place / "work", sandbox.owner(guest=True), -1)
    short = msgspec.structs.replace(SMALL, seconds=2.0)
    with Sandbox(place / "work", guest=True, limits=short) as box:
        command = ["sh", "-c", f"echo last; exec >&- 2>&-; sleep {LONG}"]
        lines = box.lines(command)
        assert next(lines) == b"last\n"
        with pytest.raises(sandbox.Stopped, match="more than 2 s"):
            next(lines)
        assert b"".join(box.lines(["sh", "-c", "printf half; exec >&- 2>&-; sleep 1"])) == b"half"
    assert left(place) == []


@pytest.mark.usefixtures("kind")
def test_words_have_an_end_and_no_power(make: Make) -> None:
    with pytest.raises(LabError, match="stopped, since it printed more than 1 MB"):
        make(BUILD, "yes")
    with pytest.raises(LabError, match=r"stopped, since it printed more than 1 MB"):
        make(BUILD, "tr '\\0' x </dev/zero")
    with pytest.raises(LabError) as refusal:
        make(BUILD, "printf 'ERROR: \\033]0;mine\\007\\n'; exit 1")
    assert "ERROR: ?]0;mine?" in str(refusal.value)


@needs_root
def test_daemon_ends_with_its_build(kind: str, make: Make, place: Path) -> None:
    begun = time.monotonic()
    server = make(BUILD, f"setsid sleep {LONG} & setsid sleep {LONG} >/dev/null 2>&1 &")
    assert server.build.sandbox == kind
    assert time.monotonic() - begun < 60
    assert left(place) == []


def groups(pid: int) -> list[Path]:
    """The control groups of a lab's sandboxes."""
    return [*Path("/sys/fs/cgroup").glob(f"**/wal-lab-sandbox-{pid}-*")]


@pytest.mark.usefixtures("bwrap")
@needs_root
def test_build_does_not_outlive_the_lab(place: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from wallab.machine.sandbox import Sandbox\n"
        f"with Sandbox(Path({str(place / 'work')!r}), guest=True) as box:\n"
        f"    command = 'setsid sleep {LONG} & echo up; sleep {LONG}'\n"
        "    for line in box.lines(['sh', '-c', command]):\n"
        "        print(line, flush=True)\n"
    )
    (place / "work").mkdir()
    lab = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        cwd=paths.LAB,
        env=os.environ | {"PYTHONPATH": str(paths.LAB)},
    )
    assert lab.stdout is not None
    with lab.stdout:
        assert b"up" in lab.stdout.readline()
        assert left(place)
        lab.send_signal(signal.SIGKILL)
        lab.wait()
    deadline = time.monotonic() + 60
    while left(place):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # The next start removes what the kernel counted by.
    assert memorygroup.lacking() or groups(lab.pid)
    ledger.clear_dead()
    assert groups(lab.pid) == []


LEFT = {
    "set-uid": ('chmod 4755 "$target/bin/postgres"', "bin/postgres: has a set-user-ID"),
    "set-gid": ('chmod 2755 "$target/bin/postgres"', "bin/postgres: has a set-user-ID"),
    "link out": ('ln -s /etc/shadow "$target/share"', "share: a link to '/etc/shadow'"),
    "link up": ('ln -s ../../x "$target/lib/x"', "lib/x: a link to '../../x'"),
    "fifo": ('mkfifo "$target/fifo"', "fifo: a FIFO"),
    "socket": (
        "/usr/bin/python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"\n"
        'mv s "$target/s"',
        "s: a socket",
    ),
    "prefix": (
        'rm -r "$target"; ln -s /etc "$target"',
        "staging/usr/local/pgsql: pgsql is no folder",
    ),
    "nothing": ('rm -r "$1/usr"', "staging/usr/local/pgsql: usr is no folder"),
    "deep": (
        'cd "$target"; for i in $(seq 60); do mkdir d; cd d; done',
        "more than 40 folders in one another",
    ),
    "many": (
        'mkdir "$target/m"; cd "$target/m"; seq 1100 | xargs touch',
        "more than 1000 files",
    ),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_is_left_is_looked_at(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "MOST", 1000)
    lines, reason = LEFT[what]
    target = tmp_path / "staging/usr/local/pgsql"
    script = f"target={target}\n{TREE[INSTALL].replace('cp server', 'echo >')}\n{lines}"
    command: list[str | Path] = ["sh", "-c", script, "sh", tmp_path / "staging"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with pytest.raises(foreign.Refused) as refusal:
        foreign.copy(tmp_path, "staging/usr/local/pgsql", tmp_path / "taken", os.geteuid())
    assert reason in str(refusal.value)


def test_server_with_other_rights_is_not_kept(make: Make, place: Path) -> None:
    with pytest.raises(LabError) as refusal:
        make(INSTALL, 'chmod 4755 "$target/bin/postgres"')
    assert str(refusal.value) == (
        "building theirs: what it made is not taken, since it has bin/postgres: has a set-user-ID "
        "or set-group-ID bit"
    )
    assert kept(place) == []


@needs_root
def test_device_and_foreign_file_are_not_taken(tmp_path: Path) -> None:
    """A build cannot make them; they are looked for all the same."""
    given = tmp_path / "given"
    given.mkdir()
    os.mknod(given / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with pytest.raises(foreign.Refused, match=r"^null: a device"):
        foreign.copy(tmp_path, "given", tmp_path / "taken", os.geteuid())
    (given / "null").unlink()
    (given / "root's").write_text("x")
    with pytest.raises(foreign.Refused, match="root's: belongs to user 0"):
        foreign.copy(tmp_path, "given", tmp_path / "taken2", 12345)
    os.setxattr(
        given / "root's", "security.capability", bytes.fromhex("0100000200200000") + b"\0" * 12
    )
    with pytest.raises(foreign.Refused, match="root's: has capabilities"):
        foreign.copy(tmp_path, "given", tmp_path / "taken3", 0)


def test_copy_keeps_what_is_good(tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "a/b").mkdir(parents=True)
    (given / "a/one").write_text("text")
    (given / "a/one").chmod(0o660)
    (given / "a/program").write_text("code")
    (given / "a/program").chmod(0o711)
    (given / "a/b/other").hardlink_to(given / "a/one")
    (given / "a/link").symlink_to("one")
    foreign.copy(tmp_path, "given/a", tmp_path / "taken", os.geteuid())
    taken = tmp_path / "taken"
    assert (taken / "one").read_text() == (taken / "link").read_text() == "text"
    assert (taken / "one").samefile(taken / "b/other")
    assert not (taken / "one").samefile(given / "a/one")
    modes = [(taken / name).stat().st_mode & 0o7777 for name in ("one", "program", "b")]
    assert modes == [0o644, 0o755, 0o755]
    foreign.copy_file(tmp_path, "given/a/one", tmp_path / "file", os.geteuid())
    assert (tmp_path / "file").read_text() == "text"
    (given / "a/through").symlink_to("b")
    for inner in ("given/a/through/other", "given/../given/a/one", "given/a/b/../one"):
        with pytest.raises(foreign.Refused):
            foreign.copy_file(tmp_path, inner, tmp_path / "none", os.geteuid())
    assert not (tmp_path / "none").exists()


def test_sizes_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "LARGEST", 1 << 20)
    (tmp_path / "given").mkdir()
    with (tmp_path / "given" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(foreign.Refused, match="sparse: more than"):
        foreign.copy(tmp_path, "given", tmp_path / "taken", os.geteuid())


def digest(folder: Path) -> dict[str, str]:
    """What is in the folder's files, but for ccache's counters."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != "stats"
    }


@needs_root
def test_patch_leaves_nothing_for_the_next(
    kind: str,
    make: Make,
    place: Path,
    tree: source.Source,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither in the tree nor in the compiler cache: not for the lab's own, nor for itself."""
    assert kind
    monkeypatch.setattr(paths, "PATCHES", place / "ours")
    (place / "ours").mkdir()
    (place / "ours/more.patch").write_text(adding(BUILD, "echo more"))
    release = msgspec.structs.replace(tree, official=True)
    maker = Builder(release, Autoconf(15), place / "servers")
    (stock,) = maker.build({"stock": []})
    shared = place / "cache/ccache"
    (home,) = place.glob("cache/trees/*")
    before = digest(shared), digest(home / "tree")
    assert before[0]
    theirs = place / "theirs.patch"
    theirs.write_text(
        adding(
            BUILD,
            # Into the tree, the build folder and all caches that can be reached.
            'for file in "$here/server.c" "$here/build.sh" server Makefile; do\n'
            '  echo "#error evil" >>"$file" || true\n'
            "done\n"
            f"for file in $(find {place}/cache $CCACHE_DIR -type f); do\n"
            '  echo evil >>"$file" || true\n'
            "done 2>/dev/null",
        )
    )
    theirs_maker = Builder(release, Autoconf(15), place / "theirs")
    with contextlib.suppress(LabError):
        theirs_maker.build({"theirs": [Patch("theirs", theirs)]})
    assert "more evil" not in str(before)
    assert (digest(shared), digest(home / "tree")) == before
    (again,) = maker.build({"more": [Patch("more", place / "ours/more.patch")]})
    program = (stock.path / "bin/postgres").read_bytes()
    assert (again.path / "bin/postgres").read_bytes() == program
    assert make(BUILD, "true").build.patches[0].name == "theirs"


@needs_root
@pytest.mark.usefixtures("kind")
def test_patches_of_the_tree_that_stays_are_taken_back_in_the_copy(
    place: Path, tree: source.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "PATCHES", place / "ours")
    (place / "ours").mkdir()
    for file, word in ((place / "ours/more.patch", "ours"), (place / "theirs.patch", "theirs")):
        file.write_text(adding(BUILD, f"echo said by $((1 + 1)) {word}"))
    maker = Builder(msgspec.structs.replace(tree, official=True), Autoconf(15), place / "servers")
    maker.build({"more": [Patch("more", place / "ours/more.patch")]})
    maker.build({"theirs": [Patch("theirs", place / "theirs.patch")]})
    assert "said by 2 theirs" in log_of(place)
    assert "said by 2 ours" not in log_of(place)
    (home,) = place.glob("cache/trees/*")
    assert "ours" in (home / "tree/src/build.sh").read_text()


@needs_root
def test_stranger_reads_the_shared_cache(
    kind: str, place: Path, tree: source.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And keeps one of its own for as long as the patch is the same."""
    assert kind
    monkeypatch.setattr(paths, "PATCHES", place / "ours")
    release = msgspec.structs.replace(tree, official=True)
    maker = Builder(release, Autoconf(15), place / "servers")
    maker.build({"stock": []})
    # From ccache's own view: what was the first, a hit or a miss.
    counting = (
        "ccache --print-stats | grep -E '^(remote_storage_hit|cache_miss)' >counts; cat counts"
    )
    theirs = place / "theirs.patch"
    theirs.write_text(adding(BUILD, counting))
    theirs_maker = Builder(release, Autoconf(15), place / "theirs")
    theirs_maker.build({"theirs": [Patch("theirs", theirs)]})
    counts = dict(line.split("\t") for line in log_of(place).splitlines() if "\t" in line)
    if kind == "bwrap":  # elsewhere the folder, so what is compiled, has another name
        assert int(counts["remote_storage_hit"]) >= 1
    assert len(list((place / "cache/ccache-of").iterdir())) == 1
    assert not list((place / "cache/ccache-of").glob("*/evil"))


# What an engine leaves a container by default.
ENGINES = (
    "chown,dac_override,fsetid,fowner,mknod,net_raw,setgid,setuid,setfcap,setpcap,"
    "net_bind_service,sys_chroot,kill,audit_write"
)


@needs_root
def test_engines_default_rights_are_enough(
    place: Path, tree: source.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bubblewrap works with them; the build is another user's all the same."""
    let_python_be_reached(monkeypatch)
    patch = place / "theirs.patch"
    patch.write_text(adding(INSTALL, 'id -un >"$target/who"; echo x >/usr/x || true'))
    program = (
        "from pathlib import Path\n"
        f"from {Patch.__module__} import Patch\n"
        "from wallab.servers import source\n"
        "from wallab.servers.builder import Builder\n"
        "from wallab.servers.buildsystem import Autoconf\n"
        f"maker = Builder(source.resolve({str(tree.location)!r}), Autoconf(15), "
        f"Path({str(place / 'servers')!r}))\n"
        f"(server,) = maker.build({{'theirs': [Patch('theirs', Path({str(patch)!r}))]}})\n"
        "print(server.build.sandbox, (server.path / 'who').read_text())\n"
    )
    rights = ",".join(["-all", *(f"+{name}" for name in ENGINES.split(","))])
    inside = [
        "setpriv",
        f"--bounding-set={rights}",
        "--inh-caps=-all",
        sys.executable,
        "-c",
        program,
    ]
    variables = {
        "WALLAB_IMAGE": "builder",
        "PYTHONPATH": os.pathsep.join([str(paths.LAB), str(sandbox.PACKAGES)]),
    }
    done = [
        subprocess.run(
            [*network, *inside], capture_output=True, text=True, env=os.environ | variables
        )
        for network in ([], ["unshare", "--net"])
    ]
    if any(name != "lo" for _, name in socket.if_nameindex()):
        assert "this container has a network" in done[0].stderr
    assert done[1].stdout.split() == ["container", provision.GUEST_USER], done[1].stderr
    assert not Path("/usr/x").exists()


@needs_root
def test_lab_refuses_without_a_sandbox(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "refused", lambda guest=True: "no namespaces")
    with pytest.raises(
        MachineError, match=r"bubblewrap makes none here \(no namespaces\)"
    ) as error:
        make(BUILD, "true")
    assert error.value.exit_code == 3
    assert "--no-sandbox" in str(error.value)
    monkeypatch.setenv("WALLAB_IMAGE", "builder")
    monkeypatch.setattr(sandbox, "_network", lambda: "eth0")
    with pytest.raises(MachineError, match=r"has a network \(eth0\).*--network none"):
        make(BUILD, "true")
    monkeypatch.setenv(sandbox.SETTING, "1")
    let_python_be_reached(monkeypatch)
    assert make(BUILD, "true").build.sandbox == "none"


@pytest.mark.parametrize("module", [build_variant, run_matrix, power_cut])
def test_every_command_that_builds_can_do_without(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SETTING, "")
    with pytest.raises(LabError):
        module.command.main(["--no-sandbox", "--source", "/nonexistent"], standalone_mode=False)
    assert os.environ[sandbox.SETTING] == "1"


@needs_root
def test_folder_that_the_user_cannot_pass_is_told(
    make: Make, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SETTING, "1")
    (place / "cache").mkdir(mode=0o700)
    with pytest.raises(MachineError, match=r"who may not pass .*/cache to .*WALLAB_CACHE"):
        make(BUILD, "true")


@needs_root
@pytest.mark.usefixtures("bwrap")
def test_ordinary_users_lab_has_one_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It builds as that user, who sees neither home nor network of theirs in there."""
    let_python_be_reached(monkeypatch)
    places = os.pathsep.join([str(paths.LAB), str(sandbox.PACKAGES)])
    home = place / "home"
    home.mkdir()
    (home / "secret").write_text("mine")
    work = home / "work"
    work.mkdir()
    user = provision.SERVER_USER
    for path in (home, home / "secret", work):
        shutil.chown(path, user, user)
    program = (
        "from pathlib import Path; from wallab.machine.sandbox import Sandbox\n"
        f"with Sandbox(Path({str(work)!r}), guest=True) as box:\n"
        "    print(box.kind, box.user)\n"
        f"    command = 'touch made; cat {home}/secret; id -u; ls {home}; cat /proc/net/dev'\n"
        "    for line in box.lines(['sh', '-c', command]): print(line.decode(), end='')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": places, "HOME": str(home),
             "WALLAB_RUNTIME": str(work / "runtime")},
        user=user,
        group=user,
        extra_groups=[],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bwrap None" in done.stdout
    assert "secret: No such file or directory" in done.stdout
    assert "mine" not in done.stdout
    assert (work / "made").stat().st_uid != 0
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines() if ": " in line][
        -1:
    ] == ["lo"]


@pytest.mark.usefixtures("bwrap")
def test_no_rights_are_left_inside(place: Path) -> None:
    (place / "work").mkdir()
    os.chown(place / "work", sandbox.owner(guest=True), -1)
    with Sandbox(place / "work", guest=True) as box:
        status = b"".join(box.lines(["cat", "/proc/self/status"])).decode()
        mine = b"".join(box.lines(["sh", "-c", "ls /proc | grep -c '^[0-9]*$'"]))
    values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {
        int(values[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    } == {0}
    assert values["NoNewPrivs"] == "1"
    assert values["Groups"].split() in ([], [str(os.getegid())]) or not ROOT
    assert int(mine) <= 4
