"""Debian's packages without root: fetched and unpacked, and of the past, from an archive of it."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallab import paths
from wallab.errors import MachineError
from wallab.machine import process, provision
from wallab.virtual import kernel, packages, qemu
from wallab.virtual.packages import NotToBeHad


def package(folder: Path, name: str, version: str, files: dict[str, bytes]) -> Path:
    """A Debian package with these files."""
    tree = folder / f"{name}-{version}".replace(":", "_")
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
        (tree / path).chmod(0o755)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN" / "control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
        "Maintainer: nobody <n@example.org>\nDescription: a package\n"
    )
    made = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", tree, made], check=True, capture_output=True)
    return made


class Past:
    """An archive of what there was, on this machine."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []

    def add(self, deb: Path, name: str, version: str) -> None:
        """Have a package."""
        digest = hashlib.sha1(deb.read_bytes(), usedforsecurity=False).hexdigest()
        listed = {"result": [{"architecture": "all", "hash": digest}]}
        quoted = urllib.parse.quote(version, safe="")
        self.answers[f"/mr/binary/{name}/{quoted}/binfiles"] = json.dumps(listed).encode()
        self.answers[f"/file/{digest}"] = deb.read_bytes()


@pytest.fixture
def past(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Past]:
    """An archive that the lab asks, and a cache of its own."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there.asked.append(self.path)
            body = there.answers.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        there = Past(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv(packages.SNAPSHOT, there.address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("WALLAB_CACHE", str(tmp_path / "cache"))
        try:
            yield there
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def no_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that has none of the versions."""

    def refuse(self: packages.Apt, *command: str) -> str:
        raise NotToBeHad(f"no {command[-1]}")

    monkeypatch.setattr(packages.Apt, "ask", refuse)


GONE = "1:7.2+dfsg-7~old"


@pytest.mark.usefixtures("no_apt")
def test_what_the_archive_has_replaced_comes_from_its_past(past: Past, tmp_path: Path) -> None:
    past.add(package(tmp_path, "seabios", GONE, {"usr/share/x": b"old"}), "seabios", GONE)
    (tmp_path / "home").mkdir()
    unpacked = packages.unpack(["seabios"], {"seabios": GONE}, tmp_path / "home")
    assert unpacked.versions == {"seabios": GONE}
    assert (unpacked.folder / "usr/share/x").read_bytes() == b"old"
    # As its manual has it: the colon of an epoch is no part of a path.
    assert past.asked[0] == "/mr/binary/seabios/1%3A7.2%2Bdfsg-7~old/binfiles"


@pytest.mark.usefixtures("no_apt")
def test_what_the_past_does_not_hold_is_named(past: Past, tmp_path: Path) -> None:
    with pytest.raises(NotToBeHad, match=r"seabios 9\.9: .*no seabios=9\.9.*Not Found"):
        packages.unpack(["seabios"], {"seabios": "9.9"}, tmp_path)


@pytest.mark.usefixtures("no_apt")
@pytest.mark.parametrize("listed", [b"", b"[]", b'{"result": [{}]}', b'{"result": 7}'])
def test_an_answer_of_something_else_is_refused(past: Past, tmp_path: Path, listed: bytes) -> None:
    past.answers["/mr/binary/seabios/1/binfiles"] = listed
    with pytest.raises(NotToBeHad, match="cannot be read"):
        packages.unpack(["seabios"], {"seabios": "1"}, tmp_path)


@pytest.mark.usefixtures("no_apt")
def test_a_damaged_package_is_refused(past: Past, tmp_path: Path) -> None:
    past.add(package(tmp_path, "seabios", GONE, {"x": b"old"}), "seabios", GONE)
    for path in list(past.answers):
        if path.startswith("/file/"):
            past.answers[path] += b"x"
    (tmp_path / "home").mkdir()
    with pytest.raises(NotToBeHad, match="damaged"):
        packages.unpack(["seabios"], {"seabios": GONE}, tmp_path / "home")
    assert not list((tmp_path / "home").iterdir())


@pytest.mark.usefixtures("no_apt")
def test_another_version_than_the_one_asked_for_is_refused(past: Past, tmp_path: Path) -> None:
    past.add(package(tmp_path, "seabios", "2", {"x": b"new"}), "seabios", GONE)
    (tmp_path / "home").mkdir()
    with pytest.raises(NotToBeHad, match=r"asked for .* and got 2"):
        packages.unpack(["seabios"], {"seabios": GONE}, tmp_path / "home")


def test_a_kernel_of_the_past(past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the versions of a run; and the cache keeps it beside the present one."""
    monkeypatch.setattr(kernel, "MODULES", ("one", "two"))
    image, old = "linux-image-0.1-cloud-amd64", "0.1-1"
    modules = "lib/modules/0.1-cloud-amd64"
    past.add(
        package(tmp_path, image, old, {
            "boot/vmlinuz-0.1-cloud-amd64": b"kernel",
            f"{modules}/modules.builtin": b"kernel/two.ko\n",
            f"{modules}/kernel/one.ko": b"\0depends=three-more\0one",
            f"{modules}/kernel/three_more.ko": b"\0depends=\0three",
        }), image, old,
    )  # fmt: skip
    past.add(package(tmp_path, "busybox-static", "1:0.2", {"bin/busybox": b"busy"}),
             "busybox-static", "1:0.2")  # fmt: skip
    versions = {image: old, "busybox-static": "1:0.2", "seabios": "of another's"}
    fetched = kernel.fetch(versions)
    assert (fetched.version, fetched.modules) == ("0.1-cloud-amd64", ("three_more", "one"))
    assert fetched.versions == {image: old, "busybox-static": "1:0.2"}
    assert (fetched.image.read_bytes(), fetched.busybox.read_bytes()) == (b"kernel", b"busy")
    asked = len(past.asked)
    assert kernel.fetch(versions) == fetched
    # Neither has it to be fetched once more where it is the present one.
    fetched.folder.rename(kernel._folder({}))
    assert kernel.fetch(versions).folder == kernel._folder({}) == kernel.fetch().folder
    assert len(past.asked) == asked


def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """No QEMU is installed."""
    monkeypatch.setattr(qemu, "_installed", lambda: None)


@pytest.mark.usefixtures("no_apt")
def test_without_an_emulator_there_is_the_line_that_root_has_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hidden(monkeypatch)
    monkeypatch.setenv("WALLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    line = "as root, run: apt-get install qemu-system-x86"
    with pytest.raises(MachineError, match=line) as caught:
        qemu.find()
    assert caught.value.exit_code == 3


def test_root_has_it_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden(monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def refuse(wanted: dict[str, str]) -> None:
        raise provision.SetupError(f"asked for {', '.join(wanted)}")

    monkeypatch.setattr(provision, "install", refuse)
    with pytest.raises(MachineError, match="asked for qemu-system-x86"):
        qemu.find()


def test_another_version_than_the_installed_one_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / qemu.PROGRAM
    program.write_text("")
    installed = qemu.Qemu(program, {}, dict.fromkeys(qemu.PACKAGES, "2"))
    monkeypatch.setattr(qemu, "_installed", lambda: installed)
    asked: list[dict[str, str]] = []

    def kept(what: str, names: tuple[str, ...], versions: dict[str, str]) -> packages.Unpacked:
        asked.append(versions)
        raise NotToBeHad("gone")

    monkeypatch.setattr(packages, "kept", kept)
    assert qemu.find({"seabios": "2", "busybox-static": "1"}) is installed
    with pytest.raises(MachineError, match="gone"):
        qemu.find({"seabios": "1", "busybox-static": "1"})
    assert asked == [{"seabios": "1"}]


def test_packages_that_the_cache_has_are_fetched_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The newest, too, where a run names just these versions; others lie beside."""
    monkeypatch.setenv("WALLAB_CACHE", str(tmp_path))
    fetched: list[dict[str, str]] = []

    def unpack(names: tuple[str, ...], versions: dict[str, str], home: Path) -> packages.Unpacked:
        fetched.append(versions)
        (home / "whole").mkdir()
        return packages.Unpacked(home / "whole", {name: versions.get(name, "2") for name in names})

    monkeypatch.setattr(packages, "unpack", unpack)
    names = ("a", "b")

    def kept(**versions: str) -> packages.Unpacked:
        return packages.kept("some", names, versions, alone=True)

    past = kept(a="1", b="1")
    assert fetched == [{"a": "1", "b": "1"}]
    newest = kept()
    assert kept(a="2", b="2") == kept(b="2") == newest == kept()
    assert kept(a="1", b="1") == past
    assert past.folder != newest.folder
    assert fetched == [{"a": "1", "b": "1"}, {}]


WITHOUT_ROOT = """
import os, shutil, subprocess, sys
from wallab.virtual import kernel, qemu, rootfs
assert os.geteuid() and not shutil.which(qemu.PROGRAM) and not shutil.which("mkfs.xfs")
found = qemu.find()
told = subprocess.run([found.program, "-machine", "help"], env=os.environ | found.environment,
                      capture_output=True, text=True)
assert told.returncode == 0 and "i440FX" in told.stdout, told.stderr
assert found.firmware != qemu.Qemu(found.program.parents[2] / "x" / "y", {}, {}).firmware
tools = rootfs._tools()
made = subprocess.run([tools.program("mkfs.xfs"), "-V"], env=os.environ | tools.environment,
                      capture_output=True, text=True)
assert made.returncode == 0 and "mkfs.xfs" in made.stdout, made.stderr
print(kernel.fetch().image.stat().st_size > 1_000_000)
"""


@pytest.mark.stack
def test_a_user_without_root_needs_nothing_installed(tmp_path: Path) -> None:
    """Where QEMU and the tools of file systems are hidden, in a namespace of the test's own."""
    if refused := process.namespaces_refused("--mount"):
        pytest.skip(refused)
    try:
        packages.run(["apt-get", "-qq", "--print-uris", "download", "seabios"], tmp_path)
    except NotToBeHad as error:
        pytest.skip(f"apt has no packages: {error}")
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.owner() == "root" and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    script = (
        'for name in qemu-system-x86_64 mkfs.xfs; do place=$(command -v "$name") && '
        'mount --bind "$1" "$(readlink -f "$place")"; done; shift; '
        'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
    )
    nothing = tmp_path / "nothing"
    nothing.write_text("")
    nothing.chmod(0o644)
    command: list[str | Path] = ["unshare", "--mount", "sh", "-c", script, "sh", nothing]
    if subprocess.run([*command, sys.executable, "-c", ""], cwd="/").returncode:
        pytest.skip(f"others than root cannot run {sys.executable}")
    done = subprocess.run(
        [*command, sys.executable, "-c", WITHOUT_ROOT], cwd=paths.LAB, capture_output=True,
        text=True, timeout=600, env={
            "PATH": os.environ["PATH"], "HOME": str(home), "WALLAB_CACHE": str(home / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "True\n"
