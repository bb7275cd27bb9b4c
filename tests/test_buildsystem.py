"""How far a build is, by what the build systems' own programs print."""

import subprocess
from pathlib import Path

import pytest

from wallab.servers.buildsystem import Autoconf, Meson

FILES = ("server/main.c", "server/log/write.c", "server/log/sync.c", "win32/never.c")


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A source tree, and a build folder where make goes through its folders as PostgreSQL's does.

    Of the four files one is never built. What is there already is not compiled.
    """
    source, build = tmp_path / "source", tmp_path / "build"
    for name in FILES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("int nothing;\n")
    compiling = f"%.o: {source}/%.c\n\ttrue cc -O2 -c -o $@ $< -MMD && touch $@\n"
    for folder, goals in {"": "", "server": "main.o", "server/log": "write.o sync.o"}.items():
        (build / folder).mkdir(parents=True, exist_ok=True)
        below = {"": "server", "server": "log"}.get(folder)
        recurse = f"\t$(MAKE) -C {below}\n" if below else ""
        (build / folder / "Makefile").write_text(
            f"all: {goals}\n{recurse}" + compiling.replace("/%.c", f"/{folder}/%.c")
        )
    return source, build


def shares(source: Path, build: Path) -> list[float]:
    """The shares that a build by make shows."""
    result = subprocess.run(
        ["make", "-C", build],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
    progress = Autoconf(15).progress(source, build)
    readings = [progress(line) for line in result.stdout.splitlines()]
    return [share for share in readings if share is not None]


def test_make_is_followed_file_by_file(trees: tuple[Path, Path]) -> None:
    source, build = trees
    assert shares(source, build)[:3] == [0.25, 0.5, 0.75]
    # What is up to date is done as make goes by.
    assert shares(source, build) == [0.5, 0.75, 0.75]
    (build / "server/log/sync.o").unlink()
    assert shares(source, build) == [0.25, 0.5, 0.75, 0.75]


def test_make_is_followed_through_a_link(trees: tuple[Path, Path], tmp_path: Path) -> None:
    """Make tells folders by their real names, whatever the cache is called."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert shares(link / "source", link / "build")[-1] == 0.75
    assert trees[0].is_dir()


def test_other_lines_of_make_tell_nothing(trees: tuple[Path, Path]) -> None:
    progress = Autoconf(15).progress(*trees)
    for line in ("make[1]: Nothing to be done for 'all'.", "ar crs libx.a main.o", ""):
        assert progress(line) is None
    assert progress("cc -c -o x.o /elsewhere/x.c") == 0.0


def test_ninja_counts_itself(tmp_path: Path) -> None:
    progress = Meson(18).progress(tmp_path, tmp_path)
    assert progress("[3/12] Compiling C object main.c.o") == 0.25
    assert progress("ninja: Entering directory") is None
