"""The same made in two folders of different names is the same: digests and bytes.

Nothing of this needs an emulator, Debian's archive or root.
"""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wallab import paths
from wallab.files import jsonfile
from wallab.virtual import elf, template

NAMES = ("one", "o'neil's other one, [2]")
"""Of folders; the second has what a shell, an option or a pattern could take for its own."""

PARTS = (
    "wallab",
    "drive",
    "direct_cp",
    "patches",
    "results/reference",
    "requirements.txt",
    "matrix.toml",
)

SOURCE = """
#include <assert.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    assert(argc > 0);
    printf("I am %s\\n", argv[argc - 1]);
    return 0;
}
"""

MADE = """
import hashlib, json, sys
from pathlib import Path
from wallab import paths
from wallab.bench import provenance
from wallab.machine import checkout, provision
from wallab.record import matrix
from wallab.virtual import bed, kernel, python, rootfs
from wallab.virtual.bed import VirtualBed
from wallab.virtual.kernel import Kernel

home = Path(sys.argv[1])
assert paths.LAB == home / "lab" and paths.cache() == home / "cache", (paths.LAB, paths.cache())
provision.compile_program(paths.DRIVE, provision.drive_program())
provision.compile_program(paths.DIRECT_CP, provision.copy_program())
fake = Kernel(home / "kernel", "0.1", ("one",), {"busybox-static": "1"})
kernel.fetch = lambda versions: fake
python.find = lambda versions: python.own()
experiment, preset = matrix.choose(matrix.read(), "thread", "smoke")
cells = tuple(matrix.cells(experiment, preset))
trees = {name: home / "server" for name in ("stock", "direct-io", "gather-write", "both")}
made = VirtualBed(experiment, preset, cells, trees, seed=1, folder=home, workers=1)
images = [rootfs.root(fake, python.own()), rootfs.server(home / "server")]
print(json.dumps({
    "machine": repr(made.machine),
    "recipes": [repr(recipe) for recipe in made._recipes.values()],
    "images": [hashlib.sha256(image.path.read_bytes()).hexdigest() for image in images],
    "first": hashlib.sha256(rootfs.first(fake)).hexdigest(),
    "program": checkout.drive_program(),
    "copier": hashlib.sha256(provision.copy_program().read_bytes()).hexdigest(),
    "lab": checkout.files(),
    "drives": provenance.drive_parameters(experiment),
}))
"""


def lab(home: Path) -> None:
    """A copy of the lab, a kernel that is none, an emulator that only tells its version."""
    (home / "lab").mkdir(parents=True)
    for name in PARTS:
        source = paths.LAB / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        (home / "lab" / name).parent.mkdir(exist_ok=True)
        copy(source, home / "lab" / name)
    shutil.rmtree(home / "lab" / "wallab" / "__pycache__", ignore_errors=True)
    (home / "kernel" / "modules").mkdir(parents=True)
    for name in ("vmlinuz", "busybox", "modules/one.ko"):
        (home / "kernel" / name).write_text(f"I am {name}")
    emulator = home / "bin" / "qemu-system-x86_64"
    emulator.parent.mkdir()
    emulator.write_text("#!/bin/sh\necho QEMU emulator version 0\n")
    emulator.chmod(0o755)


def server(home: Path) -> None:
    """Programs in the place of a server's, compiled there with the folder's name in them."""
    for folder in ("bin", "lib", "share/postgresql"):
        (home / "server" / folder).mkdir(parents=True)
    (home / "source").mkdir()
    (home / "source" / "main.c").write_text(SOURCE)
    program = home / "server" / "bin" / "postgres"
    compile_it: list[str | Path] = ["cc", "-g", "-O1", "-Wl,--build-id", "-o", program, "main.c"]
    subprocess.run(compile_it, cwd=home / "source", check=True)
    for name in ("initdb", "pgbench", "psql"):
        shutil.copy(program, home / "server" / "bin" / name)
    shutil.copy(program, home / "server" / "lib" / "plugin.so")
    (home / "server" / "share" / "postgresql" / "a.sample").write_text("port = 5432\n")


def older(folder: Path) -> None:
    """Other times and rights, as another user's checkout has them."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            writable = 0o200 if path.is_dir() else 0
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o077 | writable)
            os.utime(path, (1, 1))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[str, Any]]]:
    """Everything that a sample is a function of, made in each of the folders."""
    everything = []
    for name in NAMES:
        home = tmp_path_factory.mktemp("folders") / name
        lab(home)
        server(home)
        if name != NAMES[0]:
            older(home)
        done = subprocess.run(
            [sys.executable, "-c", MADE, home], cwd=home / "lab", capture_output=True, text=True,
            env=os.environ | {
                "WALLAB_CACHE": str(home / "cache"), "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
                "PYTHONPATH": str(home / "lab"), "PYTHONDONTWRITEBYTECODE": "1",
                "CCACHE_DISABLE": "1",
            },
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        everything.append((home, json.loads(done.stdout.splitlines()[-1])))
    return everything


@pytest.mark.parametrize(
    "what", ["machine", "recipes", "images", "first", "program", "copier", "lab", "drives"]
)
def test_another_folder_makes_the_same(made: list[tuple[Path, dict[str, Any]]], what: str) -> None:
    assert made[1][1][what] == made[0][1][what]


def test_nothing_names_its_folder(made: list[tuple[Path, dict[str, Any]]]) -> None:
    for home, known in made:
        assert str(home) not in json.dumps(known)
        for image in (home / "cache" / "virtual").glob("*/image"):
            assert os.fsencode(home) not in image.read_bytes(), image


def test_the_programs_that_differ_would_be_seen(made: list[tuple[Path, dict[str, Any]]]) -> None:
    """What was compiled here and there is not the same until it is reduced to what is loaded."""
    programs = [(home / "server" / "bin" / "postgres").read_bytes() for home, _ in made]
    assert len(set(programs)) == len(NAMES)
    reduced = [elf.loaded(program) for program in programs]
    assert len(set(reduced)) == 1
    assert len(reduced[0]) < len(programs[0])


def test_a_program_runs_without_what_is_not_loaded(
    made: list[tuple[Path, dict[str, Any]]], tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_bytes(elf.loaded((made[0][0] / "server/bin/postgres").read_bytes()))
    program.chmod(0o755)
    printed = subprocess.run([program, "here"], capture_output=True, text=True)
    assert printed.stdout == "I am here\n"


def test_code_is_kept_to_the_last_byte(made: list[tuple[Path, dict[str, Any]]]) -> None:
    """Another constant makes another program."""
    whole = (made[0][0] / "server/bin/postgres").read_bytes()
    at = whole.index(b"I am %s")
    changed = whole[:at] + b"I was%s" + whole[at + 7 :]
    assert elf.loaded(whole) != elf.loaded(changed)


@pytest.mark.parametrize(
    "data",
    [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(10), b"\x7fELF\x01\x01x" * 99],
)
def test_what_is_no_program_of_this_kind_is_kept(data: bytes) -> None:
    assert elf.loaded(data) == data


def test_a_program_that_is_cut_short_is_kept(made: list[tuple[Path, dict[str, Any]]]) -> None:
    whole = (made[0][0] / "server/bin/postgres").read_bytes()
    for end in (40, 64, 100, 500, 5000):
        assert elf.loaded(whole[:end]) == whole[:end]


def test_zeros_are_no_part_of_a_digest_of_memory(tmp_path: Path) -> None:
    """Whether they have blocks on the host's disk or none."""
    size, place = 20 << 20, (7 << 20) + 123
    digests = set()
    for name, filled in (("sparse", False), ("full", True)):
        file = tmp_path / name
        with file.open("wb") as stream:
            if filled:
                stream.write(bytes(size))
            stream.truncate(size)
            stream.seek(place)
            stream.write(b"something")
        digests.add(template.sparse_sha256(file))
    assert len(digests) == 1
    with (tmp_path / "sparse").open("r+b") as stream:
        stream.seek(place + (1 << 20))
        stream.write(b"something")
    assert template.sparse_sha256(tmp_path / "sparse") not in digests
    with (tmp_path / "moved").open("wb") as stream:
        stream.seek(place - (1 << 20))
        stream.write(b"something")
        stream.truncate(size)
    assert template.sparse_sha256(tmp_path / "moved") not in digests


def test_a_recipe_is_named_by_every_part_of_it() -> None:
    """So that another input makes another template."""
    part = template.Recipe.__struct_fields__
    assert part == (
        "order",
        "options",
        "emulator",
        "firmware",
        "turns",
        "kernel",
        "first",
        "root",
        "server",
    )
    recipe = template.Recipe(*("x" for _ in part))  # type: ignore[arg-type]
    names = {
        hashlib.sha256(jsonfile.dumps(msgspec.structs.replace(recipe, **{name: "y"}))).hexdigest()
        for name in part
    }
    assert len(names) == len(part)
