"""In what two runs differ that should have measured the same."""

from collections.abc import Mapping

import msgspec

from wallab.files import jsonfile
from wallab.record.build import Build
from wallab.record.manifest import Machine, Manifest

FIELDS = {
    "name": "experiment",
    "experiment": "experiment",
    "preset_name": "preset",
    "preset": "preset",
    "cells": "cells",
    "drives": "drives",
}
"""Field of the manifest -> how it is named. What else is compared is looked into."""

LAB = ("version", "commit", "files")
"""Of the lab; whether it was changed says less than the digest of its files."""


def of_runs(old: Manifest, new: Manifest) -> list[str]:
    """Name what differs between two manifests that should describe the same measurement."""
    return list(
        dict.fromkeys(
            [
                *of_fields(old, new, FIELDS),
                *of_drive_programs(old.drive_program, new.drive_program),
                *of_labs(old.lab, new.lab),
                *of_machines_of(old, new),
                *of_builds(old.builds, new.builds),
            ]
        )
    )


def of_machines_of(old: Manifest, new: Manifest) -> list[str]:
    """Name what differs of what measured: in virtual time the real machine is no part of it."""
    if old.virtual or new.virtual:
        return of_fields(old, new, {"virtual": "virtual machine"})
    return of_machines(old.machine, new.machine)


def of_resumed(old: Manifest, new: Manifest) -> list[str]:
    """Name what differs between a run and the plan to go on with it."""
    return [*of_runs(old, new), *of_fields(old, new, {"seed": "seed"})]


def of_fields(old: msgspec.Struct, new: msgspec.Struct, names: Mapping[str, str]) -> list[str]:
    """Name the fields that differ, of field -> name."""
    return [
        name
        for field, name in names.items()
        if jsonfile.dumps(getattr(old, field)) != jsonfile.dumps(getattr(new, field))
    ]


def of_drive_programs(old: str, new: str) -> list[str]:
    """Name the program of simulated drives if its digest differs."""
    # Runs of before have none noted.
    return ["the drive's program"] if old not in {"", new} else []


def of_labs(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Name what differs between two states of the lab itself."""
    # Runs of before have no digest of its files noted.
    return [f"the lab's {part}" for part in LAB if part in old and old[part] != new.get(part)]


def of_machines(old: Machine, new: Machine) -> list[str]:
    """Name what differs: kernel, its settings, the servers' sandbox, machine."""
    differing = ["kernel"] if old.kernel != new.kernel else []
    # Runs of before have none noted.
    differing += [
        f"kernel setting {name}"
        for name in sorted(old.tuning.keys() | new.tuning.keys() if old.tuning else ())
        if old.tuning.get(name) != new.tuning.get(name)
    ]
    if old.sandbox not in {"", new.sandbox}:
        differing.append("the servers' sandbox")
    # A kernel keeps a little more or less of the memory for itself from boot to boot.
    same_memory = abs(old.memory_kb - new.memory_kb) < 0.01 * old.memory_kb
    rest = msgspec.structs.replace(
        new,
        kernel=old.kernel,
        tuning=old.tuning,
        sandbox=old.sandbox,
        memory_kb=old.memory_kb if same_memory else new.memory_kb,
    )
    return [*differing, "machine"] if rest != old else differing


def of_builds(old: Mapping[str, Build], new: Mapping[str, Build]) -> list[str]:
    """Name what differs between the servers of two runs, each once."""
    differing = ["variants"] if old.keys() != new.keys() else []
    for variant in sorted(old.keys() & new.keys()):
        before, now = old[variant], new[variant]
        named = ["source"] if before.source != now.source else []
        patches = [{p.name: p.sha256 for p in build.patches} for build in (before, now)]
        named += [
            f"patch {patch}"
            for patch in sorted(patches[0].keys() | patches[1].keys())
            if patches[0].get(patch) != patches[1].get(patch)
        ]
        named += ["compiler"] if before.compiler != now.compiler else []
        # The key is a digest of all that a server is made of.
        differing += named or (["options of the build"] if before.key != now.key else [])
    return list(dict.fromkeys(differing))


def way_back(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Say how to get the lab back that began a run; nothing if it is this commit or unknown."""
    commit = old.get("commit", "")
    if commit in {"", "unknown", new.get("commit")}:
        return ""
    return f", or go on with the lab that began it: git checkout {commit}"
