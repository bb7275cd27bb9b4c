"""Processes that were noted: told from later ones of the same number, and ended."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from wallab.errors import MachineError
from wallab.machine import running
from wallab.machine.running import DriveServers, Process


class Fake:
    """A process as psutil tells it; it notes what is done to it."""

    def __init__(self, pid: int = 7, name: str = "postgres", *, ends_on: str = "quit") -> None:
        self.pid = pid
        self._name = name
        self._ends_on = ends_on
        self.status_now = psutil.STATUS_SLEEPING
        self.alive = True
        self.done: list[object] = []
        self.program = "/x/program"
        self.command: list[str] = []

    def name(self) -> str:
        """Its name."""
        return self._name

    def status(self) -> str:
        """Its state."""
        return self.status_now

    def exe(self) -> str:
        """Its program."""
        return self.program

    def cmdline(self) -> list[str]:
        """Its arguments."""
        return self.command

    def send_signal(self, number: int) -> None:
        """Note it; some end."""
        self.done.append(number)
        self.alive = self._ends_on != "quit"

    def kill(self) -> None:
        """Note it; most end."""
        if not self.alive:
            raise psutil.NoSuchProcess(self.pid)
        self.done.append("kill")
        self.alive = self._ends_on == "never"

    def wait(self, seconds: float) -> None:
        """Note it; as psutil's."""
        self.done.append(seconds)
        if self.alive:
            raise psutil.TimeoutExpired(seconds)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The process 7, the only one there is."""
    return only(monkeypatch, Fake())


def only(monkeypatch: pytest.MonkeyPatch, process: Fake) -> Fake:
    """Let there be one process."""

    def identify(pid: int) -> Process:
        if not process.alive or pid != process.pid:
            raise FileNotFoundError
        return NOTED

    monkeypatch.setattr(running, "identify", identify)
    monkeypatch.setattr(psutil, "Process", {7: process}.get)
    monkeypatch.setattr(psutil, "process_iter", lambda: [process])
    monkeypatch.setattr(running, "_sees", lambda pid, folder: True)
    return process


NOTED = Process(7, 100, "this boot")


def test_a_process_is_known_by_its_start(fake: Fake) -> None:
    noted: object = NOTED.find()
    assert noted is fake
    for field, value in (("pid", 8), ("started", 101), ("boot", "another")):
        assert msgspec.structs.replace(NOTED, **{field: value}).find() is None
    fake.status_now = psutil.STATUS_ZOMBIE
    assert NOTED.find() is None


def test_a_process_that_ends_as_it_is_looked_at(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise psutil.NoSuchProcess(7)

    monkeypatch.setattr(fake, "status", gone)
    assert NOTED.find() is None


def test_this_process_by_what_the_kernel_says() -> None:
    me = running.identify(os.getpid())
    assert me.pid == os.getpid()
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert me.started == int(fields[19])
    assert me.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with pytest.raises(OSError, match="No such file"):
        running.identify(2**22 + 1)


def test_a_name_with_anything_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = " ".join(map(str, range(4, 53)))
    stat = f"7 (a) b (c) S {numbers}\n".encode()
    monkeypatch.setattr(Path, "read_bytes", lambda path: stat if "/7/" in str(path) else b"")
    assert running.identify(7).started == 22


def test_what_ends_on_the_first_signal(fake: Fake) -> None:
    assert NOTED.undo() == "ended process 7 (postgres)"
    assert fake.done == [signal.SIGQUIT, running.PATIENCE]
    assert NOTED.undo() == ""
    assert len(fake.done) == 2


def test_what_is_deaf_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = only(monkeypatch, Fake(ends_on="kill"))
    assert NOTED.undo() == "ended process 7 (postgres)"
    assert fake.done == [signal.SIGQUIT, running.PATIENCE, "kill", running.PATIENCE]


def test_what_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Fake(ends_on="never"))
    with pytest.raises(MachineError, match=r"^process 7 \(postgres\) does not end$"):
        NOTED.undo()


def test_what_has_just_ended(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        fake.alive = False
        raise psutil.NoSuchProcess(7)

    monkeypatch.setattr(fake, "name", gone)
    assert NOTED.undo() == "ended process 7"
    assert fake.done == []


# Servers of drives, which a kill may have left before they were noted.


@pytest.fixture
def server(fake: Fake) -> Fake:
    """One whose files are in /run/a."""
    fake._name = "wal-drive"
    fake.command = ["wal-drive", "--mount", "/run/a/fuse"]
    return fake


def test_servers_of_a_folder_end(server: Fake) -> None:
    assert DriveServers(Path("/run/a")).undo() == "ended process 7 (wal-drive)"
    assert server.done[0] == signal.SIGQUIT


@pytest.mark.parametrize(
    "change",
    [
        {"_name": "sleep"},
        {"command": ["wal-drive", "/run/a"]},
        {"command": ["wal-drive", "/run/ab/fuse"]},
        {"command": ["wal-drive", "x/run/a/fuse"]},
    ],
)
def test_other_processes_go_on(server: Fake, change: dict[str, Any]) -> None:
    for name, value in change.items():
        setattr(server, name, value)
    assert DriveServers(Path("/run/a")).undo() == ""
    assert server.done == []


def test_servers_of_another_root_go_on(server: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, Path]] = []

    def sees(pid: int, folder: Path) -> bool:
        asked.append((pid, folder))
        return False

    monkeypatch.setattr(running, "_sees", sees)
    assert DriveServers(Path("/run/a")).undo() == ""
    assert (asked, server.done) == ([(7, Path("/run/a"))], [])


def test_several_servers_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = [Fake(pid, "wal-drive") for pid in (7, 8, 9)]
    for fake in fakes:
        fake.command = ["wal-drive", f"/run/{'b' if fake.pid == 8 else 'a'}/fuse"]
    monkeypatch.setattr(psutil, "process_iter", lambda: fakes)
    monkeypatch.setattr(running, "_sees", lambda pid, folder: True)
    monkeypatch.setattr(Process, "undo", lambda process: f"ended {process.pid}")
    monkeypatch.setattr(running, "identify", lambda pid: Process(pid, 1, "x"))
    assert DriveServers(Path("/run/a")).undo() == "ended 7; ended 9"
    monkeypatch.setattr(Process, "undo", lambda process: "")
    assert DriveServers(Path("/run/a")).undo() == ""


def test_a_server_that_has_just_ended(server: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(pid: int) -> Process:
        raise FileNotFoundError

    monkeypatch.setattr(running, "identify", gone)
    assert DriveServers(Path("/run/a")).undo() == ""
    assert running._identified(server) == Process(7, 0, "")  # type: ignore[arg-type]


def test_a_process_that_does_not_tell_its_arguments_goes_on(
    server: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied() -> list[str]:
        raise psutil.AccessDenied(7)

    monkeypatch.setattr(server, "cmdline", denied)
    assert DriveServers(Path("/run/a")).undo() == ""
    assert server.done == []


# Programs in a folder that goes.


def test_programs_below_a_folder_are_killed(fake: Fake) -> None:
    fake.program = "/run/a/bin/postgres (deleted)"
    assert running.end_below(Path("/run/a")) == ["ended process 7 (postgres)"]
    assert fake.done == ["kill", running.PATIENCE]


@pytest.mark.parametrize("program", ["/run/ab/postgres", "/run/a", "/x/run/a/postgres"])
def test_programs_elsewhere_go_on(fake: Fake, program: str) -> None:
    fake.program = program
    assert running.end_below(Path("/run/a")) == []
    assert fake.done == []


def test_programs_are_looked_for_where_a_link_leads(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "x").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    fake.program = f"{tmp_path}/real/x/program"
    asked: list[tuple[int, Path]] = []

    def sees(pid: int, folder: Path) -> bool:
        asked.append((pid, folder))
        return pid == 7 and len(asked) > 1

    monkeypatch.setattr(running, "_sees", sees)
    assert running.end_below(tmp_path / "link" / "x") == []
    assert running.end_below(tmp_path / "link" / "x") == ["ended process 7 (postgres)"]
    assert asked == [(7, tmp_path / "real" / "x")] * 2


def test_a_program_that_has_just_ended(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise psutil.NoSuchProcess(7)

    fake.program = "/run/a/program"
    with monkeypatch.context() as context:
        context.setattr(fake, "name", gone)
        assert running.end_below(Path("/run/a")) == []
    monkeypatch.setattr(fake, "exe", gone)
    assert running.end_below(Path("/run/a")) == []
    assert fake.done == []


def test_a_path_may_lead_others_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert running._sees(os.getpid(), tmp_path)
    assert not running._sees(os.getpid(), tmp_path / "none")
    assert not running._sees(2**22 + 1, tmp_path)
    (tmp_path / "a").mkdir()
    state, asked = os.stat, []

    def other(place: str) -> os.stat_result:
        asked.append(place)
        return state(tmp_path / "a")

    monkeypatch.setattr(running, "os", SimpleNamespace(stat=other, path=os.path))
    assert not running._sees(7, tmp_path)
    assert running._sees(7, tmp_path / "a")
    assert asked == [f"/proc/7/root{tmp_path}", f"/proc/7/root{tmp_path}/a"]
