#!/usr/bin/env python3
"""Garbage for every reader: valid files, damaged at random, must be read or refused in words.

usage: .venv/bin/python benchmarks/garbage.py [--count N] [--seed N] [--keep DIR] [--write FILE]
       [KIND …]

Counted are inputs that were read, those refused with a LabError, and those that are faults: any
other exception (a traceback, for whoever runs the command), and a reader that died of a signal or
took longer than 20 s. The exit code is 1 if there were any; their inputs are kept in DIR. The same
seed gives the same inputs.
"""

import argparse
import base64
import contextlib
import gzip
import json
import multiprocessing
import os
import quopri
import random
import re
import resource
import signal
import struct
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from wallab import paths
from wallab.drives import byhand, trace
from wallab.drives.byhand import HandDrive
from wallab.errors import LabError
from wallab.files import jsonfile
from wallab.machine import ledger, running
from wallab.machine.loop import Attached
from wallab.machine.mounts import Mounted
from wallab.powercut import campaign, conduct, display
from wallab.powercut.cutrecord import RecordFile
from wallab.progress import Work
from wallab.record import driveprofile, manifest, matrix, ownvariant, reference, series
from wallab.record.build import AppliedPatch, Build
from wallab.record.manifest import BedReport
from wallab.record.ownvariant import OwnPatch, OwnVariant
from wallab.record.samples import SampleFile
from wallab.results import tabulation
from wallab.results.tabulation import KINDS
from wallab.servers import checkresult, patchfile, prebuilt, source
from wallab.servers.checkresult import Check
from wallab.servers.patching import Touched
from wallab.servers.source import Source
from wallab.virtual import template
from wallab.virtual.message import Answer

RUN = paths.LAB / "results" / "example-quick"
CUTS = paths.LAB / "results" / "example-power-cuts-others"

PATIENCE = 20
"""Seconds that one input may take."""

MEMORY = 4 << 30
"""Bytes that a reader may have."""

BATCH = 500
"""Inputs of one child."""


class Reader(msgspec.Struct, frozen=True):
    """A kind of file: valid contents, where it lies below the folder that is read, and how."""

    seeds: list[bytes]
    place: str
    read: Callable[[Path], object]
    share: float = 1.0
    """Of the inputs that others get: what makes whole reports, or asks git, takes its time."""


# --- valid files -----------------------------------------------------------------------------


def _lines(file: Path, count: int) -> bytes:
    return b"".join(line + b"\n" for line in file.read_bytes().splitlines()[:count])


def _patches() -> list[bytes]:
    folders = (paths.PATCHES / "18", paths.LAB / "tests" / "bad-patches")
    files = [file for folder in folders for file in sorted(folder.glob("*.patch"))]
    return sorted((file.read_bytes() for file in files), key=len)[:4]


def _mails() -> list[bytes]:
    """Return one patch as a plain mail, encoded in two ways, attached, in a mailbox, and packed."""
    diff = _patches()[0]
    head = (
        b"From: A <a@example.org>\nSubject: [PATCH v2 1/2] =?utf-8?q?=C3=A4?=\nMIME-Version: 1.0\n"
    )
    plain = head + b"Content-Type: text/plain; charset=utf-8\n"
    part = b'--b\nContent-Type: text/x-patch; name="a.patch"\nContent-Disposition: attachment;\n'
    quoted = plain + b"Content-Transfer-Encoding: quoted-printable\n\n"
    whole = plain + b"\nWords\n---\n" + diff
    return [
        whole,
        quoted + quopri.encodestring(diff),
        plain + b"Content-Transfer-Encoding: base64\n\n" + base64.encodebytes(diff),
        head + b'Content-Type: multipart/mixed; boundary="b"\n\n' + part
        + b' filename="a.patch"\n\n' + diff + b"\n--b--\n",
        (b"From 0123 Mon Sep 17 00:00:00 2001\n" + whole + b"\n") * 2,
        gzip.compress(whole, mtime=0),
    ]  # fmt: skip


def _trace() -> bytes:
    head = struct.pack("<8sIIqqq24x", b"WALDRIVE", 1, 104, 8_333_333, 0, 0)
    record = struct.Struct("<12qIHH")
    rows = (record.pack(i, i, *range(100 * i, 100 * i + 10), 16, i % 4, i % 128)
            for i in range(8))  # fmt: skip
    return head + b"".join(rows)


def _ledger_record() -> bytes:
    folder = Path("/run/wal-lab/1")
    record = ledger.Record(running.identify(os.getpid()), folder, [])
    whole = json.loads(jsonfile.dumps(record))
    whole["owned"] = [
        json.loads(jsonfile.dumps(thing)) for thing in (record.owner, running.DriveServers(folder))
    ]
    return json.dumps(whole).encode()


# --- readers ---------------------------------------------------------------------------------


def _read_ledger(file: Path) -> object:
    homes = dict.fromkeys(("WALLAB_RUNTIME", "WALLAB_STATE"), str(file.parent))
    with mock.patch.dict(os.environ, homes):
        read = ledger.records()
        if read.unreadable:
            raise LabError(read.unreadable[file])
        return read.dead(), read.disks_in_use()


def _read_matrix(file: Path) -> object:
    return [
        matrix.cells(experiment, preset)
        for experiment in matrix.read(file).experiment.values()
        for preset in experiment.preset.values()
    ]


def _read_series(file: Path) -> object:
    for folder in filter(Path.is_dir, paths.PATCHES.iterdir()):
        if not (file.parent / folder.name).exists():
            (file.parent / folder.name).symlink_to(folder)
    return series.read(file)


def _read_reference(file: Path) -> object:
    with _instead(reference, "reference_file", lambda name: file):
        return reference.load("thread")


def _read_profile(file: Path) -> object:
    with _instead(driveprofile, "_PROFILES", file.parent):
        return driveprofile.profile(file.stem)


def _read_variant(file: Path) -> object:
    with _instead(paths, "BUILD", file.parents[2]):
        return [variant.about for variant in ownvariant.every().values()]


def _read_checks(file: Path) -> object:
    with _instead(paths, "BUILD", file.parents[3]):
        return checkresult.load_all()


def _read_origin(file: Path) -> object:
    with _instead(paths, "BUILD", file.parents[2]):
        return prebuilt.origin()


def _read_template(file: Path) -> object:
    (file.parent / "memory.sha256").write_text("0" * 64)
    with _instead(template, "_folder", lambda recipe: file.parent):
        return template.kept(mock.Mock())


def _read_hand_drive(file: Path) -> object:
    homes = dict.fromkeys(("WALLAB_RUNTIME", "WALLAB_STATE"), str(file.parents[1]))
    with mock.patch.dict(os.environ, homes):
        # What cannot be read is in the ledger, too, and told there.
        return [drive.mount_point for drive in byhand.every()]


def _tabulate(folder: Path) -> object:
    results = tabulation.results_of(folder)
    return [tabulation.content(results, kind) for kind in KINDS]


def _with_samples(file: Path) -> object:
    (file.parent / "samples.jsonl").write_bytes(_lines(RUN / "samples.jsonl", 20))
    return _tabulate(file.parent)


def _with_manifest(file: Path) -> object:
    (file.parent / "manifest.json").write_bytes((RUN / "manifest.json").read_bytes())
    return _tabulate(file.parent)


def _with_campaign(file: Path) -> object:
    (file.parent / "campaign.json").write_bytes((CUTS / "campaign.json").read_bytes())
    return display.render(conduct.report(file.parent))


@contextlib.contextmanager
def _instead(module: Any, name: str, value: object) -> Iterator[None]:
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


def readers() -> dict[str, Reader]:
    """Return every kind of file that a user can edit, or that the lab keeps between commands."""
    plan = (RUN / "manifest.json").read_bytes()
    samples = _lines(RUN / "samples.jsonl", 3)
    profiles = sorted((paths.DRIVE / "profiles").glob("*.toml"))
    own = OwnVariant("x", "stock", (OwnPatch("p", "1", "0", "s", "a", Path("p")),), "2026")
    check = Check("x", "18.6", "meson", (AppliedPatch("p", "0"),), "k", "2026", 1.0, 2, (), ())
    build = Build("x", "18.6", "0", "tarball", (), "meson", (), "cc", {}, "k", 1.0, "2026")
    measured = manifest.load(RUN)
    answer = Answer(
        report=BedReport(measured.templates, measured.mounts), machine=measured.machine,
        methods=("fsync",), sample=SampleFile(RUN / "samples.jsonl").read()[0],
    )  # fmt: skip
    by_hand = HandDrive(
        Mounted(Path("/mnt"), "xfs", Attached(Path("/dev/loop0"), "x", 1, "write back", 0)),
        "ata-2005", 1 << 30, running.identify(os.getpid()), Path("/c"), Path("/f"),
    )  # fmt: skip
    tarball = Source("tarball", Path("x.tar"), "18.6", "0" * 64, official=True)
    return {
        "patch": Reader(_patches(), "x.patch", patchfile.read, 0.1),
        "mail": Reader(_mails(), "x.eml", patchfile.read, 0.1),
        "manifest": Reader([plan], "manifest.json", lambda file: manifest.load(file.parent)),
        "samples": Reader([samples], "samples.jsonl", lambda file: SampleFile(file).read()),
        "campaign": Reader([(CUTS / "campaign.json").read_bytes()], "campaign.json",
                           lambda file: campaign.load(file.parent)),
        "cuts": Reader([_lines(CUTS / "cuts.jsonl", 3)], "cuts.jsonl",
                       lambda file: RecordFile(file).read()),
        "matrix": Reader([paths.MATRIX.read_bytes()], "matrix.toml", _read_matrix, 0.2),
        "series": Reader([(paths.PATCHES / "series.toml").read_bytes()], "series.toml",
                         _read_series),
        "sources": Reader([(paths.PATCHES / "sources.toml").read_bytes()], "sources.toml",
                          source.releases),
        "reference": Reader([file.read_bytes() for file in sorted(paths.REFERENCE.glob("*.toml"))],
                            "thread.toml", _read_reference),
        "profile": Reader([file.read_bytes() for file in profiles], "x.toml", _read_profile),
        "trace": Reader([_trace()], "trace", lambda file: trace.summarize(trace.read(file))),
        "ledger": Reader([_ledger_record()], "1.json", _read_ledger),
        "variant": Reader([jsonfile.dumps(own)], "variants/x/variant.json", _read_variant),
        "check": Reader([jsonfile.dumps(check)], "checks/18.6/x/result.json", _read_checks),
        "build": Reader([jsonfile.dumps(build)], "18.6/x/build.json", _read_origin),
        "template": Reader([jsonfile.dumps(answer)], "template-0/answer.json", _read_template),
        "hand drive": Reader([jsonfile.dumps(by_hand)], "drive-x/drive.json", _read_hand_drive),
        "source": Reader([jsonfile.dumps(tarball)], "18.json",
                         lambda file: jsonfile.read(file, Source, "remove it")),
        "touched": Reader([jsonfile.dumps(Touched(["a"], ["b"]))], "tree.touched.json",
                          lambda file: jsonfile.read(file, Touched, "remove it")),
        "tables of a manifest": Reader([plan], "manifest.json", _with_samples, 0.01),
        "tables of samples": Reader([samples], "samples.jsonl", _with_manifest, 0.01),
        "report of cuts": Reader([_lines(CUTS / "cuts.jsonl", 3)], "cuts.jsonl", _with_campaign,
                                 0.05),
    }  # fmt: skip


# --- damage ----------------------------------------------------------------------------------

_EXTREMES = (
    b"0", b"-1", b"1e308", b"-1e999", b"5e-324", b"9223372036854775808", b"9" * 400, b"9" * 5000,
    b"nan", b"inf", b"null", b"true", b'""', b"[]", b"{}", b'"\\ud800"',
)  # fmt: skip
_PIECES = (
    b"\0", b"\xff", b"\r\n", b'"', b"\\", b"[" * 2000, b'{"a":' * 2000, b"../", b"/", b"=?",
    b"\xc3", b"\xef\xbb\xbf", b"\n\n", b"From ", b"@@ -1 +1 @@\n", b"--- a/x\n", b"1970-01-01",
    "\u2028".encode(), b"%s", b"<script>",
)  # fmt: skip


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Damage a content in one to four places."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        if content[:1] in (b"{", b"[") and chance.random() < 0.4:
            content = _restructured(content, chance)
        else:
            content = _damaged(content, chance)
    return content


def _damaged(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randint(0, len(content))
    end = min(len(content), begin + chance.choice((0, 1, 2, 8, 80, 800)))
    other = chance.randint(0, len(content))
    piece = chance.choice((
        b"",
        bytes([chance.randrange(256)]),
        chance.randbytes(chance.randrange(12)),
        content[begin:end] * 2,
        content[other : other + chance.randrange(200)],
        chance.choice(_PIECES),
        chance.choice(_EXTREMES),
    ))  # fmt: skip
    if chance.random() < 0.05:
        return content[:begin]
    if (number := chance.random()) < 0.3:
        # Where the next number stands, so that what is around it stays valid.
        while begin < len(content) and content[begin : begin + 1] not in b"0123456789":
            begin += 1
        end = begin
        while end < len(content) and content[end : end + 1] in b"0123456789.":
            end += 1
        if number < 0.25:
            piece = chance.choice(_EXTREMES)
    return content[:begin] + piece + content[end:]


def _restructured(content: bytes, chance: random.Random) -> bytes:
    """Replace, drop or rename something in one line of JSON; other content is left as it is."""
    lines = content.split(b"\n")
    whole = len(lines) > 1 and not lines[0].endswith(b"}")
    number = 0 if whole else chance.randrange(len(lines))
    try:
        data = json.loads(content if whole else lines[number])
    except (ValueError, RecursionError):
        return content
    place = data
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.8:
            place = place[key]
            continue
        value: Any = chance.choice(
            (None, True, 0, -1, 1e308, 2**63, 10**400, "", "x", "../x", "\0", [], {}, [[]],
             {"": None}, "18", 1.5, place[key], [place[key]])
        )  # fmt: skip
        if isinstance(place, dict) and chance.random() < 0.3:
            place.pop(key)
            key = chance.choice(("", "x", str(key) + "x", str(key)))
        place[key] = value
        break
    with contextlib.suppress(ValueError):  # a number that Python writes no more
        text = json.dumps(data, indent=2 if whole else None).encode()
        lines[number] = text
        return text if whole else b"\n".join(lines)
    return content


def garbage(kind: str, reader: Reader, seed: int, number: int) -> bytes:
    """Return the input of that number: always the same."""
    chance = random.Random(f"{seed} {kind} {number}")  # noqa: S311 - no secret
    return mutated(chance.choice(reader.seeds), chance)


# --- counting --------------------------------------------------------------------------------


class Fault(msgspec.Struct, frozen=True):
    """An input that a reader did not survive."""

    kind: str
    number: int
    why: str


class _SlowError(Exception):
    pass


def _too_slow(*_: object) -> None:
    raise _SlowError(f"took longer than {PATIENCE} s")


def _why(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in last if str(paths.LAB / "wallab") in frame.filename] or list(last)
    # Without what differs from input to input, so that the same fault is counted as one.
    words = re.sub(r"0x[0-9a-f]+|\d+|['\"].*['\"]", "…", str(error)[:80])
    return f"{type(error).__name__}: {words} ({Path(ours[-1].filename).name}, line " \
           f"{ours[-1].lineno}, {ours[-1].name})"  # fmt: skip


def _child(kind: str, reader: Reader, seed: int, numbers: range, answers: Connection) -> None:
    """Read the inputs, and say of each how it went: its number before, its outcome after."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    with tempfile.TemporaryDirectory(prefix="wallab-garbage-") as home:
        file = Path(home) / reader.place
        file.parent.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            file.write_bytes(garbage(kind, reader, seed, number))
            outcome = "read"
            signal.alarm(PATIENCE)
            try:
                reader.read(file)
            except LabError as error:
                outcome = "refused" if str(error).strip() else "LabError without a word"
            except BaseException as error:
                outcome = _why(error)
            finally:
                signal.alarm(0)
            answers.send((number, outcome))
    answers.close()


def _batch(kind: str, reader: Reader, seed: int, numbers: range) -> Iterator[tuple[int, str]]:
    """Read in a child, and yield number and outcome; where the child dies, that is one, too."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    # A fork: what it reads with is there already.
    child = multiprocessing.get_context("fork").Process(
        target=_child, args=(kind, reader, seed, numbers, theirs)
    )
    child.start()
    theirs.close()
    done = numbers.start
    with contextlib.closing(ours), contextlib.suppress(EOFError):
        while True:
            number, outcome = ours.recv()
            done = number + 1
            yield number, outcome
    child.join()
    if done < numbers.stop:
        yield done, f"the reader died (exit code {child.exitcode})"
        yield from _batch(kind, reader, seed, range(done + 1, numbers.stop))


def measure(
    count: int, seed: int, kinds: list[str], keep: Path, work: Work
) -> tuple[dict[str, Counter[str]], list[Fault]]:
    """Feed about so many inputs to the readers; return outcomes by kind, and the faults."""
    chosen = {kind: reader for kind, reader in readers().items() if not kinds or kind in kinds}
    share = count / sum(reader.share for reader in chosen.values())
    outcomes: dict[str, Counter[str]] = {}
    faults: list[Fault] = []
    fed = 0
    for kind, reader in chosen.items():
        counted = outcomes[kind] = Counter()
        wanted = max(1, round(share * reader.share))
        for begin in range(0, wanted, BATCH):
            for number, outcome in _batch(
                kind, reader, seed, range(begin, min(wanted, begin + BATCH))
            ):
                fed += 1
                work.update(min(1, fed / count), f"{kind}: {number}, {len(faults)} faults")
                if outcome in ("read", "refused"):
                    counted[outcome] += 1
                    continue
                counted["fault"] += 1
                faults.append(Fault(kind, number, outcome))
                name = f"{kind.replace(' ', '-')}-{number}"
                keep.mkdir(parents=True, exist_ok=True)
                (keep / name).write_bytes(garbage(kind, reader, seed, number))
    return outcomes, faults


def table(outcomes: dict[str, Counter[str]]) -> str:
    """Return a line for each kind, and one for all."""
    rows = list(outcomes.items())
    rows.append(("all", sum(outcomes.values(), Counter())))
    lines = [f"{'':24}{'inputs':>12}{'read':>12}{'refused':>12}{'faults':>12}"]
    lines += [
        f"{kind:24}{counted.total():12,}{counted['read']:12,}{counted['refused']:12,}"
        f"{counted['fault']:12,}"
        for kind, counted in rows
    ]
    return "\n".join(lines)


def markdown(outcomes: dict[str, Counter[str]], seed: int) -> str:
    """Return the same as a table in Markdown."""
    rows = [*outcomes.items(), ("all", sum(outcomes.values(), Counter()))]
    lines = ["| kind of file | inputs | read | refused | faults |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {kind} | {counted.total():,} | {counted['read']:,} | {counted['refused']:,} "
        f"| {counted['fault']:,} |"
        for kind, counted in rows
    ]
    return "\n".join((*lines, "", f"Seed {seed}: the same seed gives the same inputs.", ""))


def main() -> int:
    """Read the command line, measure, print; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", nargs="*", help=f"of {', '.join(readers())} (all)")
    parser.add_argument("--count", type=int, default=100_000, help="of inputs (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of their damage (%(default)s)")
    parser.add_argument("--keep", type=Path, default=Path("garbage"), help="for inputs that are "
                        "faults (%(default)s)")  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="FILE", help="where the table goes, too")
    given = parser.parse_args()
    if unknown := [kind for kind in given.kind if kind not in readers()]:
        parser.error(f"no such kind: {unknown[0]}; there are {', '.join(readers())}")
    with Work("garbage") as work:
        outcomes, faults = measure(given.count, given.seed, given.kind, given.keep, work)
    print(table(outcomes))
    for why, number in Counter(f"{fault.kind}: {fault.why}" for fault in faults).most_common():
        print(f"{number:8,} × {why}")
    if faults:
        print(f"their inputs are in {given.keep}")
    if given.write:
        given.write.write_text(markdown(outcomes, given.seed))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
