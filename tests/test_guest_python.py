"""The guest's Python: Debian's, of the run's packages, whichever Python runs the lab."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from wallab.machine import provision
from wallab.paths import DIRECT_CP, DRIVE
from wallab.virtual import packages, python, rootfs
from wallab.virtual.kernel import Kernel
from wallab.virtual.packages import NotToBeHad, Unpacked
from wallab.virtual.python import Python


class Archive:
    """Packages of a newest version and of past ones, as the cache has them unpacked."""

    def __init__(self, newest: str, *past: str) -> None:
        self.newest = newest
        self.past = past
        self.asked: list[Mapping[str, str]] = []

    def kept(
        self, what: str, names: Sequence[str], versions: Mapping[str, str], *, alone: bool
    ) -> Unpacked:
        """Return what is asked for; NotToBeHad for what there never was."""
        assert alone  # what else this machine has is no part of the guest
        self.asked.append(dict(versions))
        chosen = {name: versions.get(name, self.newest) for name in names}
        if not set(chosen.values()) <= {self.newest, *self.past}:
            raise NotToBeHad("it never was")
        return Unpacked(Path("/cache") / "-".join(sorted(set(chosen.values()))), chosen)


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An archive in the place of Debian's."""
    made = Archive("2", "1")
    monkeypatch.setattr(packages, "kept", made.kept)
    return made


NAMES = python._PACKAGES


def test_the_newest_where_a_run_names_none(archive: Archive) -> None:
    chosen = python.find({"seabios": "0"})
    assert chosen.versions == dict.fromkeys(NAMES, "2")
    assert chosen.program == Path(f"/cache/2/usr/bin/{python.NAME}")
    assert chosen.library == Path(f"/cache/2/usr/lib/{python.NAME}")


def test_that_of_the_run(archive: Archive) -> None:
    newest = dict.fromkeys(NAMES, "2")
    assert python.find(newest).library.parts[2] == "2"
    past = dict.fromkeys(NAMES, "1")
    assert python.find({**past, "seabios": "0"}).versions == past
    assert archive.asked == [newest, past]


def test_this_machines_where_debians_is_not_to_be_had(
    archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = python.find(dict.fromkeys(NAMES, "0"))
    assert chosen == python.own()
    assert not chosen.versions
    assert "it never was" in capsys.readouterr().err
    command: list[str | Path] = [chosen.program, "-c", "import sys; print(sys.version)"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert version.strip() == sys.version


@pytest.fixture
def debians(tmp_path: Path) -> Python:
    """An interpreter with a library of a few files."""
    library = tmp_path / "python" / "lib"
    (library / "lib-dynload").mkdir(parents=True)
    for name in ("os.py", "sitecustomize.py", "lib-dynload/_dbm.so", "lib-dynload/_dbmlike.so"):
        (library / name).write_text(name)
    program = tmp_path / "python" / "python"
    program.write_text("the interpreter")
    return Python(program, library, {}, {})


@pytest.mark.stack
def test_nothing_of_the_python_that_runs_the_lab_is_in_the_image(
    tmp_path: Path, debians: Python
) -> None:
    for folder, program in (
        (DRIVE, provision.drive_program()),
        (DIRECT_CP, provision.copy_program()),
    ):
        provision.have_program(folder, program)
    busybox = tmp_path / "busybox"
    busybox.write_text("busybox")
    tree = rootfs._root(Kernel(tmp_path, "1", (), {}), debians)
    assert tree["usr/bin/python"].content() == b"the interpreter"
    library = {path for path in tree if path.startswith(f"usr/lib/{python.NAME}/")}
    names = {str(Path(path).relative_to(f"usr/lib/{python.NAME}")) for path in library}
    # What takes libraries that nothing in the guest needs stays away, and so does the machine's
    # own word about its Python.
    assert names == {"os.py", "lib-dynload/_dbmlike.so"}
    own = python.own()
    files = [entry.file for entry in tree.values() if entry.file]
    assert own.program not in files
    assert not any(file.is_relative_to(own.library) for file in files)
