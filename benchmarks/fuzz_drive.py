#!/usr/bin/env python3
"""The simulated drive's C fuzzed by libFuzzer: the control line, parameters, and the trace.

usage: .venv/bin/python benchmarks/fuzz_drive.py [--seconds N] [--corpus DIR] [--seed N] [TARGET …]

Each target of drive/fuzz runs N seconds with clang's sanitizers, and is begun with what is in
DIR/TARGET, to which every input is added that reached something new; a run after it goes on from
there. Printed are the executions and crashes; the exit code is 1 if there were any, 3 without
clang. An input that crashed stays in DIR, to be run again: BUILD/fuzz/fuzz_TARGET FILE.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import msgspec

from wallab import paths
from wallab.command.test import SANITIZERS
from wallab.errors import MachineError

TARGETS = ("control", "params", "trace")

COMMANDS = (
    "state", "counters", "reset", "timing off", "timing on", "write-cache off", "write-cache on",
    "write-cache battery", "flush-lies on", "destage pause", "destage resume",
    "profile rpm=15000 queue_depth=32 name=x", "profile units=8 read_segments=0", "snapshot",
    "restore", "power off writes=1 within=5 keep=0.5 seed=3", "power off", "power on", "cut",
    "errors write times=1 for=5 sector=16 count=16", "errors all", "errors off", "trace /t",
    "trace off", "help", "quit",
)  # fmt: skip

WORDS = (",1", "=", "0", "-1", "1", "63", "64", "65", "4096", "100000000", "1099511627776",
           "9223372036854775807", "9223372036854775808")  # fmt: skip

MEMORY_MB = 2048
PATIENCE = 20
"""Seconds that one input may take."""


class Outcome(msgspec.Struct, frozen=True):
    """What a target did."""

    target: str
    executions: int
    crash: str = ""
    """The first words of what ended it, and the file with the input."""


def lacking() -> str:
    """Say why nothing can be fuzzed on this machine; nothing if it can."""
    if not shutil.which("clang"):
        return "needs clang"
    runtime = subprocess.run(
        ["clang", "-print-runtime-dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not any(Path(runtime).glob("libclang_rt.fuzzer*")):
        return "needs libFuzzer (libclang-rt-dev)"
    return ""


def compile_targets(folder: Path, sources: Path = paths.DRIVE) -> Path:
    """Compile the targets in a new folder, and return where they are; MachineError if not."""
    for command in (
        [
            "env",
            "CC=clang",
            "meson",
            "setup",
            "-Dfuzz=true",
            *SANITIZERS,
            str(folder),
            str(sources),
        ],
        ["meson", "compile", "-C", str(folder), *(f"fuzz_{target}" for target in TARGETS)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise MachineError(f"the targets do not compile:\n{done.stdout}{done.stderr}")
    return folder / "fuzz"


def seeds(target: str) -> list[bytes]:
    """Return valid inputs to begin with."""
    if target == "control":
        lines = [f"{command}\n" for command in COMMANDS]
        return [line.encode() for line in (*lines, "".join(lines))]
    if target == "params":
        profiles = sorted((paths.DRIVE / "profiles").glob("*.toml"))
        zones = ",".join(str(900 - number) for number in range(64))  # as many as there may be
        return [*map(_assignments, profiles), f"zone_sectors_per_track={zones}\n".encode()]
    return [bytes(range(256)) * 12]


def _assignments(profile: Path) -> bytes:
    values = tomllib.loads(profile.read_text())
    words = {
        key: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in values.items()
    }
    return "".join(f"{key}={value}\n" for key, value in words.items()).encode()


def dictionary(target: str) -> str:
    """Return the words of the target's inputs, as libFuzzer reads them."""
    words = set(WORDS) if target != "trace" else set()
    for seed in seeds(target) if words else []:
        words.update(re.findall(r"[a-z_-]+=?", seed.decode()))
    return "".join(f'"{word}"\n' for word in sorted(words))


def fuzz(programs: Path, target: str, seconds: int, home: Path, seed: int = 1) -> Outcome:
    """Run a target for so long; its corpus, and what crashed it, are below home."""
    corpus = home / target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(seeds(target)):
        (corpus / f"seed-{number}").write_bytes(content)
    options = []
    if words := dictionary(target):
        (home / f"{target}.dict").write_text(words)
        options.append(f"-dict={home}/{target}.dict")
    done = subprocess.run(
        [programs / f"fuzz_{target}", f"-max_total_time={seconds}", f"-seed={seed}",
         "-max_len=5000", "-len_control=0", f"-timeout={PATIENCE}", f"-rss_limit_mb={MEMORY_MB}",
         "-print_final_stats=1", f"-artifact_prefix={home}/{target}-", *options, corpus],
        capture_output=True, text=True, errors="replace", timeout=seconds + 10 * PATIENCE,
    )  # fmt: skip
    executions = re.search(r"^stat::number_of_executed_units: *(\d+)", done.stderr, re.MULTILINE)
    return Outcome(
        target,
        int(executions[1]) if executions else 0,
        _crash(done.stderr) if done.returncode else "",
    )


def _crash(errors: str) -> str:
    reason = re.search(r"^.*(?:runtime error: |SUMMARY: |ERROR: ).*$", errors, re.MULTILINE)
    file = re.search(r"Test unit written to (.*)", errors)
    return (
        f"{reason[0].strip() if reason else errors[-200:].strip()}"
        f" ({file[1] if file else 'no input was kept'})"
    )


def main() -> int:
    """Compile, run and print; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", nargs="*", help=f"of {', '.join(TARGETS)} (all)")
    parser.add_argument("--seconds", type=int, default=60, help="of each (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of its choices (%(default)s)")
    parser.add_argument("--corpus", type=Path, help="where inputs are kept (a new folder)")
    given = parser.parse_args()
    targets = given.target or TARGETS
    if unknown := [target for target in targets if target not in TARGETS]:
        parser.error(f"no such target: {unknown[0]}; there are {', '.join(TARGETS)}")
    if reason := lacking():
        print(f"fuzz_drive: {reason}: run scripts/setup test", file=sys.stderr)
        return MachineError.exit_code
    home = given.corpus or Path(tempfile.mkdtemp(prefix="wallab-fuzz-"))
    with tempfile.TemporaryDirectory(prefix="wallab-fuzz-build-") as build:
        try:
            programs = compile_targets(Path(build))
        except MachineError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        outcomes = []
        for target in targets:
            print(f"{target}: for {given.seconds} s", file=sys.stderr, flush=True)
            outcome = fuzz(programs, target, given.seconds, home.absolute(), given.seed)
            print(f"{target:8} {outcome.executions:12,} executions, {1 if outcome.crash else 0} "
                  f"crashes{': ' if outcome.crash else ''}{outcome.crash}", flush=True)  # fmt: skip
            outcomes.append(outcome)
    print(f"inputs are in {home}")
    return 1 if any(outcome.crash for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
