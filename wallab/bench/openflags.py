"""How the kernel sees the server's WAL segments opened; see proc(5), /proc/PID/fdinfo."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from wallab.machine import process

# O_SYNC includes O_DSYNC's bit.
_O_SYNC_ALONE = os.O_SYNC & ~os.O_DSYNC

_PATIENCE = 10
"""Seconds for programs that list a few files."""


def flag_names(flags: int) -> str:
    """Name those flags of an open file that matter for WAL, such as O_DIRECT|O_DSYNC; or none."""
    names = []
    if flags & os.O_DIRECT:
        names.append("O_DIRECT")
    if flags & _O_SYNC_ALONE:
        names.append("O_SYNC")
    elif flags & os.O_DSYNC:
        names.append("O_DSYNC")
    return "|".join(names) or "none"


def open_flags(postmaster: int, wal: Path) -> dict[str, int]:
    """Count how the server's processes have their current WAL segment open, as the kernel says.

    Returns flags by name -> number of processes that can write it so.
    """
    counts: dict[str, int] = {}
    try:
        pids = [child.pid for child in psutil.Process(postmaster).children()]
    except psutil.Error:
        return counts
    lines = (line for info in _infos(pids, wal) for line in info.splitlines())
    for line in lines:
        name, _, value = line.partition(":")
        if name == "flags" and (flags := int(value, 8)) & os.O_ACCMODE:
            names = flag_names(flags)
            counts[names] = counts.get(names, 0) + 1
    return dict(sorted(counts.items()))


def _is_segment(target: str, wal: Path) -> bool:
    name = target.removeprefix(f"{wal}/")
    return name != target and len(name) == 24


def _infos(pids: Sequence[int], wal: Path) -> Iterator[str]:
    """Yield what the kernel says of the open segments, of one or of several at a time."""
    hidden = []
    for pid in pids:
        home = Path(f"/proc/{pid}")
        try:
            for link in (home / "fd").iterdir():
                if _is_segment(str(link.readlink()), wal):
                    yield (home / "fdinfo" / link.name).read_text()
        except PermissionError:
            hidden.append(pid)
        except OSError:
            continue  # the process, or its file, has just gone
    if hidden:
        yield from _infos_as_server(hidden, wal)


def _infos_as_server(pids: Sequence[int], wal: Path) -> Iterator[str]:
    """Look as the server's user: root without CAP_SYS_PTRACE, as in a container, may not."""
    folders = [f"/proc/{pid}/fd" for pid in pids]
    listed = _output(["find", *folders, "-type", "l", "-printf", "%p\\t%l\\n"])
    links = (line.partition("\t") for line in listed.splitlines())
    if files := [
        link.replace("/fd/", "/fdinfo/") for link, _, target in links if _is_segment(target, wal)
    ]:
        # One program for all: the server is being measured.
        yield _output(["cat", *files])


def _output(command: Sequence[str]) -> str:
    """Return what a program prints as the server's user; part of it where a file has just gone."""
    with process.started(
        command, as_server=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            output, _ = child.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            return ""
    return output.decode(errors="replace")
