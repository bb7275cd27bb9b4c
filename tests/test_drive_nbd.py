"""The drive for nbd clients, through nbdkit: FUA and FLUSH, power cuts and failures."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import nbdserver
import pytest

from wallab import paths
from wallab.drives.control import DriveControl
from wallab.errors import LabError

READ, WRITE, FLUSH = 0, 1, 3
FUA = 1 << 0
EIO = 5
PAGE = 8192


class NbdClient:
    """A connection of one request at a time; see the NBD protocol, newstyle handshake."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(300)
        self._socket.connect(str(path))
        assert self._receive(16) == b"NBDMAGICIHAVEOPT"
        self._receive(2)
        self._socket.sendall(struct.pack(">I", 3))  # fixed newstyle, no zeroes
        self._socket.sendall(b"IHAVEOPT" + struct.pack(">II", 1, 0))  # the default export
        self.size, self.flags = struct.unpack(">QH", self._receive(10))

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "nbdkit closed the connection"
            data += more
        return data

    def request(self, kind: int, place: int, count: int, data: bytes = b"", flags: int = 0) -> int:
        """Send a request and return its error; what a read brings is in `data`."""
        head = struct.pack(">IHHQQI", 0x25609513, flags, kind, 1, place, count)
        self._socket.sendall(head + data)
        magic, error, _ = struct.unpack(">IIQ", self._receive(16))
        assert magic == 0x67446698
        self.data = self._receive(count) if kind == READ and not error else b""
        return int(error)

    def write(self, page: int, fill: bytes, flags: int = 0) -> int:
        """Fill a page."""
        return self.request(WRITE, page * PAGE, PAGE, fill * PAGE, flags)

    def read(self, page: int) -> bytes:
        """Return what a page is full of."""
        assert self.request(READ, page * PAGE, PAGE) == 0
        assert self.data == self.data[:1] * PAGE
        return self.data[:1]

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


@pytest.fixture
def served(plugin: Path, tmp_path: Path) -> Iterator[tuple[NbdClient, DriveControl]]:
    """A client, and the control socket, of a drive whose cache is on and kept dirty."""
    with nbdserver.serving(plugin, tmp_path, "size=64M", "write-cache=on") as control:
        client = NbdClient(tmp_path / "nbd")
        control.ask("destage pause")
        yield client, control
        client.close()


def test_fua_and_flush_reach_the_drive(served: tuple[NbdClient, DriveControl]) -> None:
    client, control = served
    assert client.size == 64 << 20
    assert client.flags & 1 << 2, "no FLUSH"
    assert client.flags & 1 << 3, "no FUA"
    assert client.write(0, b"f") == 0
    assert client.request(FLUSH, 0, 0) == 0
    assert client.write(1, b"u", FUA) == 0
    assert client.write(2, b"l") == 0
    counters = control.reading().counters
    assert (counters["flushes"], counters["fua_writes"], counters["writes"]) == (1, 1, 3)

    control.ask("power off")
    assert client.write(3, b"x") == EIO
    assert client.request(READ, 0, PAGE) == EIO
    assert client.request(FLUSH, 0, 0) == EIO
    assert control.ask("cut")["lost"] == [[32, 16]]
    control.ask("power on")
    assert [client.read(page) for page in range(4)] == [b"f", b"u", b"\0", b"\0"]


def test_a_lying_flush_loses(served: tuple[NbdClient, DriveControl]) -> None:
    client, control = served
    control.ask("flush-lies on")
    assert client.write(0, b"l") == 0
    assert client.request(FLUSH, 0, 0) == 0
    control.ask("power off")
    control.ask("power on")
    assert client.read(0) == b"\0"


def test_another_profile_and_errors(served: tuple[NbdClient, DriveControl]) -> None:
    client, control = served
    assert client.write(0, b"a") == 0
    control.ask_idle("profile rpm=15000 queue_depth=32")
    assert control.ask("state")["parameters"]["rpm"] == 15000
    assert client.read(0) == b"a"
    control.ask("errors write times=1 sector=16 count=16")
    assert client.write(0, b"b") == 0
    assert client.write(1, b"b") == EIO
    assert client.write(1, b"c") == 0
    with pytest.raises(LabError, match="rpm"):
        control.ask("profile rpm=3")


def test_help_and_readme_name_the_same_commands(served: tuple[NbdClient, DriveControl]) -> None:
    _, control = served
    control_section = (paths.DRIVE / "README.md").read_text().split("## Control")[1]
    table = control_section.split("\n## ")[0]
    documented = {
        line.removeprefix("| `").split("`")[0].split()[0]
        for line in table.splitlines()
        if line.startswith("| `")
    }
    commands = control.ask("help")["commands"]
    assert {command["name"] for command in commands} == documented
    assert all(command["help"] for command in commands)


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        ("timing maybe", "expected: timing on|off"),
        ("write-cache battery2", "expected: write-cache off|on|battery"),
        ("destage", "expected: destage pause|resume"),
        ("power of", r"expected: power on|off \[writes=N|flushes=N|follow\]"),
        ("power off keep=2", "keep=SHARE"),
        ("errors flush times=x", r"expected: errors off|all|read|write|flush \[times=N\]"),
        ("trace here", "expected: trace PATH|off"),
        ("trace /tmp/a\tb", "quotes or control characters"),
        ("profile name=a\tb", "name: .* is not a plain text"),
        ("nosuch\nstate", "a command is one line"),
        ("profile name=" + "ä" * 400, "name: .*ä"),
        ("trace-\udcff", "there are: state"),
        ("nosuch", "there are: state, counters, .*, help, quit"),
        ("", "there are: state"),
    ],
)
def test_what_is_not_understood_is_explained(
    served: tuple[NbdClient, DriveControl], command: str, refusal: str
) -> None:
    _, control = served
    with pytest.raises(LabError, match=refusal.replace("|", r"\|")):
        control.ask(command)


@pytest.mark.parametrize("mode", ["off", "on", "battery"])
def test_state_names_the_write_cache_as_it_was_set(
    served: tuple[NbdClient, DriveControl], mode: str
) -> None:
    _, control = served
    control.ask(f"write-cache {mode}")
    assert control.ask("state")["write_cache"] == mode


def test_bad_settings_are_named(plugin: Path, tmp_path: Path) -> None:
    for setting, named in (
        ("rpm=3", "rpm"),
        ("write-cache=x", "write-cache"),
        ("nosuch=1", "nosuch"),
    ):
        server = nbdserver.start(plugin, tmp_path, "size=64M", setting)
        _, errors = server.communicate(timeout=120)
        assert server.returncode != 0
        assert named in errors
