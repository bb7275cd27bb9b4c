"""That the emulator's main loop and its processor take turns."""

import subprocess
from pathlib import Path

import pytest

from wallab import paths
from wallab.errors import MachineError
from wallab.virtual import cpio, devices, kernel, qemu, turns
from wallab.virtual.emulator import Emulator, Machine

SOURCES = Path(__file__).parent / "turns"
MEMORY_MB = 256


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A guest that sleeps, and answers with what its clock said after each sleep, in ns."""
    try:
        program = qemu.find()
        image = kernel.fetch().image
    except MachineError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("guest")
    sleeper = folder / "sleeper"
    compiled(sleeper, "-static", SOURCES / "sleeper.c")
    first = folder / "first"
    first.write_bytes(cpio.archive({"dev": None, "init": sleeper.read_bytes()}))
    files = {"root": devices.ROOT_MB, "server": devices.SERVER_MB, "orders": devices.ORDERS_MB}
    for name, size in (files | {"ram": MEMORY_MB}).items():
        with (folder / name).open("wb") as stream:
            stream.truncate(size << 20)
    return Machine(
        qemu=program, kernel=image, first=first, root=folder / "root", server=folder / "server",
        orders=folder / "orders", ram=folder / "ram", memory_mb=MEMORY_MB, mips=1000,
    )  # fmt: skip


def compiled(file: Path, *arguments: str | Path) -> Path:
    command = ["cc", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-o", file, *arguments]
    subprocess.run(command, check=True)
    return file


def preloaded(monkeypatch: pytest.MonkeyPatch, folder: Path, *sources: Path) -> None:
    """Have the emulator preload a library of these sources."""
    shared = ["-shared", "-fPIC"]
    library = compiled(folder / "turns.so", *shared, *sources)
    monkeypatch.setattr(turns, "library", lambda: library)


def run(guest: Machine, folder: Path) -> bytes:
    folder.mkdir()
    emulated = Emulator(guest, folder, clone=False)
    try:
        return emulated.run()
    finally:
        emulated.end()


def test_a_processor_that_is_held_up_changes_no_reading_of_the_clock(
    guest: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("WALLAB_CACHE", str(tmp_path / "a cache: of mine"))
        assert turns.library().is_relative_to(tmp_path)
        assert turns.library().parent.name == turns.digest()
        free = run(guest, tmp_path / "free")
    assert len(free.split()) == 400
    with monkeypatch.context() as planted:
        preloaded(planted, tmp_path, paths.TURNS / "turns.c", SOURCES / "holdup.c")
        assert run(guest, tmp_path / "held up") == free
    # The same without turns: else the above would show nothing.
    preloaded(monkeypatch, tmp_path, SOURCES / "holdup.c")
    monkeypatch.setattr(turns, "taken", lambda _: True)
    assert run(guest, tmp_path / "without turns") != free


def test_a_main_loop_that_sleeps_is_woken_for_its_turn(tmp_path: Path) -> None:
    """Or both would sleep for ever: nobody else wakes it for a timer of the guest's time."""
    program = compiled(tmp_path / "asleep", "-rdynamic", "-pthread", SOURCES / "asleep.c")
    done = subprocess.run(
        [program], env={"LD_PRELOAD": str(turns.library())},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_an_emulator_that_takes_no_turns_is_refused(
    guest: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preloaded(monkeypatch, tmp_path, SOURCES / "holdup.c")
    with pytest.raises(MachineError, match="does not take turns"):
        run(guest, tmp_path / "guest")
