"""What a virtual run was measured with, and is not the same here."""

from collections.abc import Iterator, Mapping

from wallab.record.build import Build
from wallab.record.manifest import Manifest
from wallab.record.virtualmachine import VirtualMachine


def differing(run: Manifest, here: Manifest) -> list[str]:
    """Name each input of the run that is another here, both by version and digest.

    `here` may have fewer servers and templates: those that some of its samples take. Both must be
    of virtual machines.
    """
    assert run.virtual is not None
    assert here.virtual is not None
    return [*_parts(run, here), *_servers(run, here), *_machine(run.virtual, here.virtual)]


def of_memory(run: Manifest, here: Mapping[str, str]) -> list[str]:
    """Name each template whose memory became another one here, though its recipe is the same."""
    return [
        words(f"the memory of the template {name}", "", known, "", here[name])
        for name, known in run.template_memory.items()
        if here.get(name, known) != known
    ]


def words(what: str, run: str, run_digest: str, here: str, here_digest: str) -> str:
    """Say how an input differs, by versions, where there are any, and digests."""

    def named(version: str, digest: str) -> str:
        return f"{version} (sha256 {digest[:16]})" if version else f"sha256 {digest[:16]}"

    return f"{what}: {named(run, run_digest)} in the run, {named(here, here_digest)} here"


def _parts(run: Manifest, here: Manifest) -> Iterator[str]:
    """Yield what the root file system is made of, ahead of itself: it tells why that differs."""
    digest = run.lab.get("files", "")
    if digest != here.lab.get("files", ""):
        yield words("the lab", _lab(run.lab), digest, _lab(here.lab), here.lab.get("files", ""))
    if run.drive_program != here.drive_program:
        yield words("the drive's program", "", run.drive_program, "", here.drive_program)
    for name in sorted(run.drives.keys() | here.drives.keys()):
        if run.drives.get(name) != here.drives.get(name):
            yield f"the parameters of the drive {name}"


def _lab(lab: Mapping[str, str]) -> str:
    return f"{lab.get('version', '')} of commit {lab.get('commit', '')[:12] or 'unknown'}"


def _servers(run: Manifest, here: Manifest) -> Iterator[str]:
    assert run.virtual is not None
    assert here.virtual is not None
    for name, digest in here.virtual.servers.items():
        known = run.virtual.servers.get(name, "")
        if digest != known:
            versions = (
                _server(manifest.builds[name]) if name in manifest.builds else "none"
                for manifest in (run, here)
            )
            yield words(f"the server {name}", next(versions), known, next(versions), digest)


def _server(build: Build) -> str:
    patches = "".join(f" {patch.name} {patch.sha256[:8]}" for patch in build.patches)
    return f"{build.version}{patches} by {build.compiler}"


def _machine(run: VirtualMachine, here: VirtualMachine) -> Iterator[str]:
    names = run.packages.keys() & here.packages.keys()
    for name in sorted(names):
        if run.packages[name] != here.packages[name]:
            yield f"the package {name}: {run.packages[name]} in the run, {here.packages[name]} here"
    for what, version, digest in (
        ("the emulator", "emulator", "emulator_sha256"),
        ("the emulator's turns", "", "turns"),
        ("the firmware", "", "firmware_sha256"),
        ("the kernel", "kernel", "kernel_sha256"),
        ("the first file system", "", "first_sha256"),
        ("the root file system", "", "root_sha256"),
    ):
        known, own = getattr(run, digest), getattr(here, digest)
        if known != own:
            names_of = [getattr(machine, version) if version else "" for machine in (run, here)]
            yield words(what, names_of[0], known, names_of[1], own)
    for name, recipe in here.templates.items():
        if run.templates.get(name) != recipe:
            yield words(
                f"the recipe of the template {name}",
                "",
                run.templates.get(name, "none"),
                "",
                recipe,
            )
