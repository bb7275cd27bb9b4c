"""What differs between two runs is named, whichever field it is."""

from typing import Any

import msgspec
import pytest

from wallab import paths
from wallab.record import difference, manifest
from wallab.record.build import Build
from wallab.record.experiment import Experiment, Preset
from wallab.record.manifest import Machine, Manifest
from wallab.record.virtualmachine import VirtualMachine

EXAMPLE = msgspec.structs.replace(
    manifest.load(paths.LAB / "results" / "example-quick"),
    lab={"version": "1", "commit": "abc", "changed": "no", "files": "01"},
    drive_program="02",
)


def another(value: Any) -> Any:
    """Something of the kind that is not the value."""
    if isinstance(value, msgspec.Struct):
        field = value.__struct_fields__[0]
        return msgspec.structs.replace(value, **{field: another(getattr(value, field))})
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, int | float):
        return value * 2 + 1
    if isinstance(value, dict):
        return {} if value else {"x": "y"}
    return () if value else ("x",)


VIRTUAL = VirtualMachine(
    mips=1000, memory_mb=(1024,), emulator="QEMU", emulator_sha256="01", turns="t",
    firmware_sha256="02", options=(), kernel="6.1", kernel_sha256="02", first_sha256="03",
    root_sha256="04", servers={}, templates={},
)  # fmt: skip


def with_another(struct: Any, field: str) -> Any:
    """The structure with something else in that field."""
    return msgspec.structs.replace(struct, **{field: another(getattr(struct, field))})


def differing(**changed: Any) -> list[str]:
    """What is named where these fields of a run are others."""
    return difference.of_resumed(EXAMPLE, msgspec.structs.replace(EXAMPLE, **changed))


NAMED = {
    "name": ["experiment"],
    "experiment": ["experiment"],
    "preset_name": ["preset"],
    "preset": ["preset"],
    "cells": ["cells"],
    "drives": ["drives"],
    "drive_program": ["the drive's program"],
    "lab": ["the lab's version", "the lab's commit", "the lab's files"],
    "machine": ["machine"],
    "builds": ["variants"],
    "seed": ["seed"],
    "virtual": ["virtual machine"],
}

OF_THE_SESSION = {
    "started", "templates", "mounts", "preparing_s", "sessions", "cost",
    # How tables of the run write what it measured.
    "titles", "direct",
    # Found out by the test bed: the run compares them when that is open.
    "methods", "template_memory",
    # What the machine lacks may be there now, and is measured then.
    "not_applicable",
}  # fmt: skip


def test_every_field_is_decided_on() -> None:
    assert set(Manifest.__struct_fields__) == NAMED.keys() | OF_THE_SESSION


@pytest.mark.parametrize("field", Manifest.__struct_fields__)
def test_field_of_the_manifest(field: str) -> None:
    if field == "virtual":
        other = msgspec.structs.replace(EXAMPLE, virtual=VIRTUAL)
    else:
        other = with_another(EXAMPLE, field)
    assert other != EXAMPLE
    assert difference.of_resumed(EXAMPLE, other) == NAMED.get(field, [])


def test_what_measured_in_virtual_time_is_the_virtual_machine() -> None:
    run = msgspec.structs.replace(EXAMPLE, virtual=VIRTUAL)
    elsewhere = msgspec.structs.replace(run, machine=with_another(run.machine, "kernel"))
    assert difference.of_resumed(run, elsewhere) == []
    for field in VirtualMachine.__struct_fields__:
        other = msgspec.structs.replace(run, virtual=with_another(VIRTUAL, field))
        assert difference.of_resumed(run, other) == ["virtual machine"], field


@pytest.mark.parametrize("field", Experiment.__struct_fields__)
def test_field_of_the_experiment(field: str) -> None:
    assert differing(experiment=with_another(EXAMPLE.experiment, field)) == ["experiment"]


@pytest.mark.parametrize("field", Preset.__struct_fields__)
def test_field_of_the_preset(field: str) -> None:
    assert differing(preset=with_another(EXAMPLE.preset, field)) == ["preset"]


@pytest.mark.parametrize("field", Machine.__struct_fields__)
def test_field_of_the_machine(field: str) -> None:
    before = msgspec.structs.replace(
        EXAMPLE,
        machine=msgspec.structs.replace(EXAMPLE.machine, tuning={"SMT": "on"}, sandbox="bwrap"),
    )
    now = msgspec.structs.replace(before, machine=with_another(before.machine, field))
    named = {
        "kernel": "kernel", "tuning": "kernel setting SMT", "sandbox": "the servers' sandbox",
    }.get(field, "machine")  # fmt: skip
    assert difference.of_resumed(before, now) == [named]


BUILD = {
    "source": ["source"],
    "patches": [f"patch {patch.name}" for patch in EXAMPLE.builds["both"].patches],
    "compiler": ["compiler"],
    "key": ["options of the build"],
}

IN_THE_KEY = {"version", "build_system", "options", "flags"}

NO_MATTER = {"variant", "source_kind", "seconds", "built", "sandbox"}
"""The same server has another one of these."""


def test_every_field_of_a_build_is_decided_on() -> None:
    assert set(Build.__struct_fields__) == BUILD.keys() | IN_THE_KEY | NO_MATTER


@pytest.mark.parametrize("field", Build.__struct_fields__)
def test_field_of_a_build(field: str) -> None:
    other = with_another(EXAMPLE.builds["both"], field)
    if field in IN_THE_KEY:
        other = with_another(other, "key")
    named = BUILD["key"] if field in IN_THE_KEY else BUILD.get(field, [])
    assert differing(builds=EXAMPLE.builds | {"both": other}) == sorted(named)


def test_what_differs_in_several_builds_is_named_once() -> None:
    builds = {name: with_another(build, "source") for name, build in EXAMPLE.builds.items()}
    assert differing(builds=builds) == ["source"]


@pytest.mark.parametrize("part", ["version", "commit", "files"])
def test_part_of_the_lab(part: str) -> None:
    assert differing(lab=EXAMPLE.lab | {part: "other"}) == [f"the lab's {part}"]


def test_files_beside_the_code_may_have_changed() -> None:
    assert differing(lab=EXAMPLE.lab | {"changed": "yes"}) == []


def test_what_runs_of_before_have_not_noted_is_not_named() -> None:
    lab = {name: text for name, text in EXAMPLE.lab.items() if name != "files"}
    before = msgspec.structs.replace(EXAMPLE, lab=lab, drive_program="")
    assert difference.of_runs(before, EXAMPLE) == []
    # But nobody knows now what it was then.
    assert difference.of_runs(EXAMPLE, before) == ["the drive's program", "the lab's files"]


def test_runs_with_other_orders_of_cells_compare() -> None:
    assert difference.of_runs(EXAMPLE, with_another(EXAMPLE, "seed")) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("abc", "def", ", or go on with the lab that began it: git checkout abc"),
        ("abc", "abc", ""),
        ("", "def", ""),
        ("unknown", "def", ""),
        ("abc", "", ", or go on with the lab that began it: git checkout abc"),
    ],
)
def test_way_back_to_the_lab(old: str, new: str, words: str) -> None:
    assert difference.way_back({"commit": old}, {"commit": new}) == words


def memories(old: int, new: int) -> list[str]:
    """What is named where the machine had so much memory, kB, and has so much now."""
    before = msgspec.structs.replace(EXAMPLE.machine, memory_kb=old)
    return difference.of_machines(before, msgspec.structs.replace(before, memory_kb=new))


def test_a_little_more_or_less_memory_is_the_same() -> None:
    assert memories(100_000, 100_999) == memories(100_000, 99_001) == []
    assert memories(100_000, 101_000) == memories(100_000, 99_000) == ["machine"]
    assert memories(1_000, 50_000) == ["machine"]


def test_settings_that_were_not_noted_are_not_named() -> None:
    before = msgspec.structs.replace(EXAMPLE.machine, tuning={})
    now = msgspec.structs.replace(before, tuning={"SMT": "on"})
    assert difference.of_machines(before, now) == []
    assert difference.of_machines(now, before) == ["kernel setting SMT"]


def test_no_way_back_to_a_lab_that_was_not_noted() -> None:
    assert difference.way_back({}, {"commit": "def"}) == ""
