"""direct_cp: the whole file under its name or none, whatever happens on the way."""

import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallab import paths
from wallab.drives.simulated import SimulatedDrive
from wallab.machine import provision
from wallab.machine.ledger import Ledger

LENGTHS = (0, 1, 511, 512, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 2_500_001)
CALLS = "openat,fstat,newfstatat,faccessat2,pread64,pwrite64,ftruncate,fsync,linkat,unlinkat,close"


@pytest.fixture(scope="module", autouse=True)
def program(sanitizers: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The program, as the lab's setup has built it, or with the sanitizers."""
    path = provision.copy_program()
    with pytest.MonkeyPatch.context() as patch:
        if sanitizers:
            folder = tmp_path_factory.mktemp("direct_cp")
            for command in (
                ["meson", "setup", *sanitizers, str(folder), str(paths.DIRECT_CP)],
                ["meson", "compile", "-C", str(folder)],
            ):
                subprocess.run(command, check=True, capture_output=True, timeout=300)
            path = folder / "direct_cp"
            patch.setattr(provision, "copy_program", lambda: path)
            # It exits with its memory; and the search for leaks cannot be under strace.
            patch.setenv("ASAN_OPTIONS", "detect_leaks=0")
        elif not path.exists():
            provision.compile_program(paths.DIRECT_CP, path)
        yield path


def content(length: int) -> bytes:
    """Bytes that are not the same anywhere."""
    return b"".join(number.to_bytes(4) for number in range(length // 4 + 1))[:length]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of an odd length, of three chunks."""
    file = tmp_path / "source"
    file.write_bytes(content(2_500_001))
    return file


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An empty directory."""
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


@functools.cache
def may_trace() -> bool:
    """Whether strace can be had, and may trace, which not every container allows."""
    if not shutil.which("strace"):
        return False
    return (
        subprocess.run(["strace", "-qq", "true"], capture_output=True, timeout=60).returncode == 0
    )


def copy(*arguments: str | Path, strace: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run direct_cp, under strace if its options are given."""
    command = [str(provision.copy_program()), *map(str, arguments)]
    if strace:
        if not may_trace():
            pytest.skip("strace may not trace here")
        command = ["strace", "-qq", *strace, *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def refuses_direct(folder: Path) -> bool:
    """Whether the file system there has no O_DIRECT."""
    (folder / "probe").write_bytes(b"x")
    try:
        return copy(folder / "probe", folder / "probed").returncode == 3
    finally:
        (folder / "probe").unlink()
        (folder / "probed").unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def _needs_direct_io(tmp_path: Path) -> None:
    if refuses_direct(tmp_path):
        pytest.skip("needs a file system with O_DIRECT for temporary files")


@pytest.mark.parametrize("length", LENGTHS)
def test_any_length(tmp_path: Path, archive: Path, length: int) -> None:
    (tmp_path / "odd").write_bytes(content(length))
    (tmp_path / "odd").chmod(0o640)
    result = copy(tmp_path / "odd", archive / "odd")
    assert (result.returncode, result.stderr) == (0, "")
    assert (archive / "odd").read_bytes() == content(length)
    assert (archive / "odd").stat().st_mode & 0o777 == 0o640
    assert [file.name for file in archive.iterdir()] == ["odd"]


def test_reads_and_writes_past_the_cache_and_syncs_in_order(source: Path, archive: Path) -> None:
    trace = source.with_name("trace")
    copy(source, archive / "copy", strace=("-o", str(trace), "-e", f"trace={CALLS}"))
    lines = trace.read_text().splitlines()
    opened = [line for line in lines if re.search(r"O_DIRECT\b", line)]
    assert len(opened) == 2, lines  # source and copy
    order = [line.split("(")[0] for line in lines if re.match(r"pwrite|ftrunc|fsync|linkat", line)]
    writes = order.count("pwrite64")
    assert order == ["pwrite64"] * writes + ["ftruncate", "fsync", "linkat", "fsync"]


def test_same_content_is_success_and_another_is_kept(source: Path, archive: Path) -> None:
    target = archive / "copy"
    assert copy(source, target).returncode == 0
    before = target.stat()
    assert copy(source, target).returncode == 0
    assert target.stat().st_ino == before.st_ino
    for other in (b"", content(2_500_000), content(2_500_000) + b"x", content(2_500_002)):
        target.write_bytes(other)
        result = copy(source, target)
        assert result.returncode == 1
        assert "another content" in result.stderr
        assert target.read_bytes() == other


def test_what_is_no_regular_file_is_kept(source: Path, archive: Path) -> None:
    (archive / "link").symlink_to("nowhere")
    (archive / "folder").mkdir()
    for name in ("link", "folder"):
        result = copy(source, archive / name)
        assert result.returncode == 1
        assert "no regular file" in result.stderr
    assert not (archive / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("one",), 2),
        (("a", "b", "c"), 2),
        (("--what", "a", "b"), 2),
        (("SOURCE", "ARCHIVE/"), 2),
        (("SOURCE", ""), 2),
        (("ARCHIVE/none", "ARCHIVE/copy"), 3),
        (("ARCHIVE", "ARCHIVE/copy"), 3),
        (("SOURCE", "ARCHIVE/none/copy"), 3),
    ],
)
def test_exit_codes(source: Path, archive: Path, arguments: tuple[str, ...], code: int) -> None:
    places = {"SOURCE": str(source), "ARCHIVE": str(archive)}
    words = [
        re.sub("SOURCE|ARCHIVE", lambda match: places[match[0]], argument) for argument in arguments
    ]
    result = copy(*words)
    assert result.returncode == code
    assert result.stderr
    assert list(archive.iterdir()) == []


def test_help() -> None:
    result = copy("--help")
    assert result.returncode == 0
    for part in ("NAME", "SYNOPSIS", "EXIT STATUS", "--fall-back"):
        assert part in result.stdout


def calls_of(source: Path, target: Path, *before: str) -> list[tuple[str, int]]:
    """Return each system call of a copy, with its number among those of its name."""
    trace = source.with_name("calls")
    copy(source, target, strace=("-o", str(trace), *before, "-e", f"trace={CALLS}"))
    target.unlink(missing_ok=True)
    names = [line.split("(")[0] for line in trace.read_text().splitlines() if "(" in line]
    return [(name, names[: place + 1].count(name)) for place, name in enumerate(names)]


def reads_before(source: Path, archive: Path) -> int:
    """Return how many reads the program's loader makes, before its own."""
    trace = source.with_name("reads")
    copy(source, archive / "x", strace=("-o", str(trace), "-e", "trace=openat,pread64"))
    (archive / "x").unlink()
    before = re.split(r"O_DIRECT\b", trace.read_text())[0]
    return before.count("pread64(")


def nameless(source: Path, archive: Path) -> str:
    """Return the strace option by which there are no files without a name."""
    trace = source.with_name("tmpfile")
    copy(source, archive / "x", strace=("-o", str(trace), "-e", "trace=openat"))
    (archive / "x").unlink()
    opens = trace.read_text().splitlines()
    number = next(place for place, line in enumerate(opens, 1) if "O_TMPFILE" in line)
    return f"inject=openat:error=EOPNOTSUPP:when={number}"


@pytest.mark.parametrize("named", [False, True])
def test_killed_at_any_call(source: Path, archive: Path, named: bool) -> None:
    target = archive / "copy"
    lacking = ["-e", nameless(source, archive)] if named else []
    calls = calls_of(source, target, *lacking)
    assert len(calls) > 15
    seen = set()
    for name, number in calls:
        if named and name == "openat":
            continue  # strace takes one injection a call, and that one lacks O_TMPFILE
        kill = f"inject={name}:signal=KILL:when={number}"
        strace = ("-o", "/dev/null", *lacking, "-e", kill)
        assert copy(source, target, strace=strace).returncode != 0, (name, number)
        seen.add(target.exists())
        if target.exists():
            assert target.read_bytes() == source.read_bytes(), (name, number)
        # The next attempt, which is what the archiver makes, succeeds and clears up.
        again = () if target.exists() else ("-o", "/dev/null", *lacking)
        assert copy(source, target, strace=again).returncode == 0
        assert target.read_bytes() == source.read_bytes()
        assert [file.name for file in archive.iterdir()] == ["copy"], (name, number)
        target.unlink()
    assert seen == {False, True}


@pytest.mark.parametrize(
    ("call", "error", "number"),
    [
        ("pread64", "EIO", 1), ("pread64", "EIO", 3), ("pwrite64", "EIO", 1),
        ("pwrite64", "ENOSPC", 2), ("pwrite64", "EDQUOT", 3), ("ftruncate", "EIO", 1),
        ("fsync", "EIO", 1), ("linkat", "EIO", 1), ("linkat", "EROFS", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("named", [False, True])
def test_errors_leave_nothing(
    source: Path, archive: Path, call: str, error: str, number: int, named: bool
) -> None:
    lacking = ["-e", nameless(source, archive)] if named else []
    if call == "pread64":
        number += reads_before(source, archive)
    inject = ("-o", "/dev/null", *lacking, "-e", f"inject={call}:error={error}:when={number}")
    result = copy(source, archive / "copy", strace=inject)
    assert result.returncode == 3
    assert "direct_cp: " in result.stderr
    assert list(archive.iterdir()) == []


def test_directory_that_cannot_be_synced_is_an_error(source: Path, archive: Path) -> None:
    inject = ("-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=2")
    result = copy(source, archive / "copy", strace=inject)
    assert result.returncode == 3
    assert "directory could not be synced" in result.stderr
    assert copy(source, archive / "copy").returncode == 0


def test_source_that_seems_to_end_early(source: Path, archive: Path) -> None:
    number = reads_before(source, archive) + 2
    inject = ("-o", "/dev/null", "-e", f"inject=pread64:retval=0:when={number}+")
    result = copy(source, archive / "copy", strace=inject)
    assert result.returncode == 3
    assert "changed while it was copied" in result.stderr
    assert list(archive.iterdir()) == []


def test_short_and_interrupted_calls_go_on(source: Path, archive: Path) -> None:
    number = reads_before(source, archive) + 1
    for inject in (f"pread64:error=EINTR:when={number}", "pwrite64:error=EINTR:when=2"):
        strace = ("-o", "/dev/null", "-e", f"inject={inject}")
        assert copy(source, archive / "copy", strace=strace).returncode == 0
        assert (archive / "copy").read_bytes() == source.read_bytes()
        (archive / "copy").unlink()


def test_falls_back_only_when_told_to(source: Path, archive: Path) -> None:
    trace = source.with_name("opens")
    copy(source, archive / "copy", strace=("-o", str(trace), "-e", "trace=openat"))
    (archive / "copy").unlink()
    opens = trace.read_text().splitlines()
    number = next(place for place, line in enumerate(opens, 1) if "O_DIRECT" in line)
    strace = ("-o", "/dev/null", "-e", f"inject=openat:error=EINVAL:when={number}")
    refused = copy(source, archive / "copy", strace=strace)
    assert refused.returncode == 3
    assert "refuses O_DIRECT" in refused.stderr
    assert list(archive.iterdir()) == []
    allowed = copy("--fall-back", source, archive / "copy", strace=strace)
    assert allowed.returncode == 0
    assert "going through the page cache" in allowed.stderr
    assert (archive / "copy").read_bytes() == source.read_bytes()


@pytest.mark.stack
def test_full_disk(tmp_path: Path, source: Path) -> None:
    owned = Ledger.open("test-full-disk")
    try:
        drive = SimulatedDrive("data", "ata-2005", 512 << 20, "xfs", owned)
        try:
            drive.mount()
            # Room for less than the source, in blocks that no other file of the file system wants.
            free = shutil.disk_usage(drive.mount_point).free
            filler = drive.mount_point / "filler"
            subprocess.run(["fallocate", "-l", str(free - (1 << 20)), str(filler)], check=True)
            assert shutil.disk_usage(drive.mount_point).free < source.stat().st_size
            result = copy(source, drive.mount_point / "copy")
            assert result.returncode == 3
            assert "No space" in result.stderr
            left = {file.name for file in drive.mount_point.iterdir()}
            assert left == {"filler"}
            filler.unlink()
            assert copy(source, drive.mount_point / "copy").returncode == 0
            assert (drive.mount_point / "copy").read_bytes() == source.read_bytes()
        finally:
            drive.close()
    finally:
        owned.close()
