#!/usr/bin/env python3
"""Patches whose builds mean harm: what the user of build-variant sees of each, and what is left.

usage: .venv/bin/python benchmarks/hostile_builds.py [--write FILE] [CASE …]

Each is built from a source that takes a moment, in the sandbox that every patch gets, with limits
that are reached soon. The exit code is 1 if one of them is built, or leaves a process, a server or
a file elsewhere. With --write what was seen goes to FILE, for docs/safety.md, without what make
says of itself.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import msgspec
import psutil

from benchmarks import smallsource
from benchmarks.smallsource import BUILD, INSTALL
from wallab.errors import LabError
from wallab.machine import sandbox, scratch
from wallab.machine.sandbox import Limits
from wallab.servers import source
from wallab.servers.builder import Builder
from wallab.servers.buildsystem import Autoconf
from wallab.servers.patches import Patch

LIMITS = Limits(memory=1 << 30, processes=100, seconds=30, disk=200 << 20, scratch=50 << 20)

LONG = f"4{os.getpid()}"
"""Seconds that no other process sleeps."""


PROGRAM = Path("/usr/bin/wal-lab-planted")


class Case(msgspec.Struct, frozen=True):
    """What a patch adds to a script of the source, and what stops it."""

    about: str
    script: str
    lines: str


def cases(home: Path) -> dict[str, Case]:
    """Return them by name; a file of root's, `secret`, is in the folder."""
    call = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    return {
        "read": Case("reads a file of root's", BUILD, f"cat {home / 'secret'} /etc/shadow"),
        "write": Case("writes outside", BUILD, f"echo mine >{home / 'planted'}"),
        "system": Case("adds a program", BUILD, f"cp server {PROGRAM}"),
        "network": Case("reaches the network", BUILD, f'/usr/bin/python3 -c "{call}"'),
        "fork": Case("forks without end", BUILD,
                     f"forks() {{ sleep {LONG} & forks; }}\nforks"),
        "fill": Case("fills the disk", BUILD,
                     "while dd if=/dev/zero of=$(date +%N) bs=1M count=20; do :; done; sleep 60"),
        "memory": Case("takes all memory", BUILD,
                       "/usr/bin/python3 -c 'x = bytearray(3 << 30)'"),
        "endless": Case("never ends", BUILD, f"sleep {LONG}"),
        "stay": Case("leaves a process", BUILD,
                     f"setsid sleep {LONG} >/dev/null 2>&1 & echo ERROR: that is all; exit 1"),
        "set-uid": Case("installs a set-user-ID program", INSTALL,
                        'chmod 4755 "$target/bin/postgres"'),
        "link": Case("installs a link out of its folder", INSTALL,
                     'ln -s /etc/shadow "$target/share"'),
    }  # fmt: skip


def left(home: Path) -> list[str]:
    """Say what there is that must not be."""
    left = [f"process {process.pid}" for process in psutil.process_iter(["cmdline"])
             if LONG in (process.info["cmdline"] or [])]  # fmt: skip
    left += [
        str(path)
        for path in (*home.glob("servers/*/*"), home / "planted", PROGRAM)
        if path.exists()
    ]
    return left


def build(case: Case, home: Path) -> str:
    """Build the patch, and return what the user sees; nothing if it was built."""
    patch = home / "theirs.patch"
    patch.write_text(smallsource.adding(case.script, case.lines))
    maker = Builder(source.resolve(str(home / "small-15.99.tar.gz")), Autoconf(15),
                    home / "servers")  # fmt: skip
    try:
        maker.build({"theirs": [Patch("theirs", patch)]})
    except LabError as error:
        return re.sub(r"\S*/trees/[^/]+", "…", str(error)).replace(str(home), "…")
    return ""


def shortened(words: str) -> list[str]:
    """Return the lines of an error without those that say what make does."""
    noise = re.compile(r"make(\[\d+\])?: (Entering|Leaving|\*\*\*)|sh …/|The whole log: ")
    return [line for line in words.splitlines() if not noise.match(line.strip())]


def main() -> int:
    """Read the command line, build, print; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*", help=f"of {', '.join(cases(Path()))} (all)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where it goes, too")
    given = parser.parse_args()
    seen: list[str] = []
    if unknown := [name for name in given.case if name not in cases(Path())]:
        parser.error(f"no such case: {unknown[0]}")
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="wal-lab-hostile-", dir="/var/tmp") as folder,
        mock.patch.object(sandbox, "default_limits", return_value=LIMITS),
        mock.patch.dict(os.environ, {"WALLAB_CACHE": f"{folder}/cache"}),
    ):
        home = Path(folder)
        home.chmod(0o755)
        smallsource.packed(home)
        (home / "secret").write_text("of root's alone\n")
        (home / "secret").chmod(0o600)
        for name, case in cases(home).items():
            if given.case and name not in given.case:
                continue
            begun = time.monotonic()
            words = build(case, home)
            seconds = time.monotonic() - begun
            rest = left(home)
            good = bool(words) and not rest and "of root's alone" not in words
            failed += not good
            came = "stopped" if good else "NOT STOPPED"
            print(f"{name}: {case.about}: {came} in {seconds:.0f} s")
            print("\n".join(f"  {line}" for line in (words or "it was built").splitlines()))
            for line in rest:
                print(f"  left: {line}")
            seen += [f"# A patch whose build {case.about}", *shortened(words), ""]
        scratch.remove(home / "cache")
    if given.write and not failed:
        given.write.parent.mkdir(parents=True, exist_ok=True)
        given.write.write_text("\n".join(["```text", *seen[:-1], "```", ""]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
