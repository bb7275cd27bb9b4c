"""Build variants: installed servers at build/<version>/<variant>/.

One work tree for each source, build system and set of options is patched, built, installed and
patched anew for the next variant, so that a variant costs what its patches touch. All of that
happens in a workshop (workshop.py); the lab takes what was installed from there, and looks at it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.files import foreign, jsonfile
from wallab.files.foreign import Refused
from wallab.files.timestamp import utc
from wallab.machine import container, sandbox, scratch
from wallab.machine.provision import BUILD_USER
from wallab.machine.sandbox import Stopped
from wallab.progress import Work, say
from wallab.record import series
from wallab.record.build import AppliedPatch, Build
from wallab.record.conditions import server_name
from wallab.servers import buildlog, buildsystem, prebuilt, treejob, workshop
from wallab.servers import source as sources
from wallab.servers.buildsystem import PREFIX, BuildSystem, Progress
from wallab.servers.patches import Patch, patches_of
from wallab.servers.source import Source, resolve
from wallab.servers.treejob import Apply, Unpack
from wallab.servers.workshop import Workshop

FORMAT = 1
"""Raised when the way of building changes, so that everything is built anew."""


class Server(msgspec.Struct, frozen=True):
    """An installed server."""

    path: Path
    build: Build
    fresh: bool
    """Whether it was built just now."""
    guest: bool = True
    """Whether its code is a stranger's."""


def compiler() -> str:
    """Return the C compiler's first line about itself; MachineError if there is none."""
    if container.image() == "lab":
        return prebuilt.origin().compiler
    command = os.environ.get("CC", "cc").split()
    try:
        version = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        raise MachineError(f"no C compiler: “{' '.join(command)} --version” fails") from None
    return version.stdout.splitlines()[0]


def _flags() -> dict[str, str]:
    names = ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def _are_ours(patches: list[Patch]) -> bool:
    return all(patch.file.resolve().is_relative_to(paths.PATCHES) for patch in patches)


def cheapest_order(variants: dict[str, list[Patch]]) -> list[str]:
    """Return the variants so that each differs from the one before in as few patches as can be."""
    left = dict(variants)
    order: list[str] = []
    applied: set[Patch] = set()
    while left:
        nearest = min(left, key=lambda name: len(applied ^ set(left[name])))
        order.append(nearest)
        applied = set(left.pop(nearest))
    return order


class Builder:
    """Builds variants of one source with one build system."""

    def __init__(self, source: Source, system: BuildSystem, folder: Path | None = None) -> None:
        self.source = source
        self.system = system
        self.folder = (folder or paths.BUILD) / source.label
        if system.name == "autoconf" and source.major >= 16:
            # Beside the default build of the same version.
            self.folder = self.folder.with_name(f"{source.label}-autoconf")
        self._compiler = compiler()
        self._flags = _flags()
        trees = paths.cache() / "trees"
        # A configured tree names its own place; in a cache that was moved, there is to be another.
        digest = _digest(
            FORMAT,
            source.identity,
            system.name,
            system.options,
            self._compiler,
            self._flags,
            str(trees),
            BUILD_USER if os.geteuid() == 0 else "",
        )
        self._home = trees / f"{source.label}-{system.name}-{digest[:12]}"

    def key(self, patches: list[AppliedPatch]) -> str:
        """Return the key of the server that these patches make."""
        return _digest(
            FORMAT,
            self.source.version,
            self.source.identity,
            patches,
            self.system.name,
            self.system.options,
            self._compiler,
            self._flags,
        )

    def trusts(self, patches: list[Patch]) -> bool:
        """Whether all of the code is known: a release, and patches of the lab's own."""
        return self.source.official and _are_ours(patches)

    def have(self, variant: str, patches: list[Patch]) -> Server | None:
        """Return the variant's server if just that has been built."""
        path = self.folder / variant
        try:
            build = jsonfile.load(path / "build.json", Build)
        except (OSError, msgspec.MsgspecError):
            return None
        applied = [AppliedPatch(patch.name, patch.sha256) for patch in patches]
        return Server(path, build, fresh=False) if build.key == self.key(applied) else None

    def build(self, variants: dict[str, list[Patch]]) -> list[Server]:
        """Return the servers of the variants, building those that are missing or out of date.

        LabError or MachineError where one cannot be built; those before it are kept.
        """
        servers: dict[str, Server] = {}
        for variant in cheapest_order(variants):
            patches = variants[variant]
            if (server := self.have(variant, patches)) is None:
                with self._locked():
                    # Somebody else may have built it while this one waited.
                    server = self.have(variant, patches) or self._build(variant, patches)
            servers[variant] = msgspec.structs.replace(server, guest=not self.trusts(patches))
        return [servers[variant] for variant in variants]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            lock = (self._home / "lock").open("w")
        except OSError as error:
            raise MachineError(f"{self._home}: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another build of PostgreSQL {self.source.version}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Where a container is all there is between builds, no other home can be entered.
            self._home.chmod(0o711)
            try:
                yield
            finally:
                self._home.chmod(0o700)

    @contextmanager
    def _workshop(self, patches: list[Patch]) -> Iterator[Workshop]:
        """Open the place for a build with these patches; the home must be locked."""
        own = _are_ours(patches)
        # An edited directory is still the same one's; every other code has a cache of its own.
        code: list[object] = [str(self.source.location)]
        if not own or self.source.kind != "directory":
            code = [self.source.identity, *([] if own else [patch.sha256 for patch in patches])]
        with workshop.opened(
            self._home,
            guest=not self.trusts(patches),
            lasting=own,
            store=paths.cache() / "ccache-of" / _digest(*code)[:16],
            readable=[*sandbox.lab_folders(), *(patch.file.resolve() for patch in patches)],
        ) as shop:
            yield shop

    def _build(self, variant: str, patches: list[Patch]) -> Server:
        if container.image() == "lab":
            raise prebuilt.refuse_to_build(variant)
        begun = time.monotonic()
        with (
            self._working("building", variant) as (work, output),
            self._workshop(patches) as shop,
        ):
            self._compile(shop, patches, work, output)
            work.update(1.0, "install")
            scratch.remove(shop.folder / "staging")
            for command in self.system.install(shop.inside / "build", shop.inside / "staging"):
                self._run(shop, command, output, work)
            record = self._record(variant, patches, time.monotonic() - begun, shop.box.kind)
            server = self._keep(shop, record)
            scratch.remove(shop.folder / "staging")
        return server

    def with_tree(
        self, variant: str, patches: list[Patch], use: Callable[[Workshop], None]
    ) -> None:
        """Call `use` with the workshop, its tree patched and compiled as the variant.

        It is the variant's only until `use` returns, and a stranger's: take files from it by
        `foreign` alone. LabError where it cannot be built.
        """
        with (
            self._locked(),
            self._working("compiling the tests of", variant) as (work, output),
            self._workshop(patches) as shop,
        ):
            self._compile(shop, patches, work, output)
            use(shop)

    @contextmanager
    def _working(self, doing: str, variant: str) -> Iterator[tuple[Work, BinaryIO]]:
        """Show the work, log its output, and say what is wrong where it fails."""
        log = self._home / f"{variant}.log"
        title = f"{doing} {variant} of PostgreSQL {self.source.version} ({self.system.name})"
        try:
            with Work(title) as work, log.open("wb") as output:
                yield work, output
        except subprocess.CalledProcessError as error:
            raise self._failure(variant, error, log) from None
        except Stopped as error:
            raise LabError(f"{doing} {variant}: stopped, since {error}. Its log: {log}") from None
        except Refused as error:
            raise LabError(
                f"{doing} {variant}: what it made is not taken, since it has {error}"
            ) from None
        except OSError as error:
            raise MachineError(f"{doing} {variant}: {error}; nothing was changed") from None

    def _compile(self, shop: Workshop, patches: list[Patch], work: Work, output: BinaryIO) -> None:
        """Bring the work tree to these patches and build it."""
        work.update(0.0, "source tree")
        self._prepare(shop, output)
        tree = shop.inside / "src"
        name = f"PostgreSQL {self.source.version} ({self.source.location})"
        files = [msgspec.structs.replace(patch, file=patch.file.resolve()) for patch in patches]
        self._do(shop, Apply(tree, name, files))
        build = shop.inside / "build"
        if not self.system.configured(shop.folder / "build"):
            work.update(0.0, "configure")
            self._run(shop, ["rm", "-rf", str(build)], output, work)
            self._run(shop, ["mkdir", str(build)], output, work)
            self._run(shop, self.system.configure(tree, build), output, work, cwd=build)
        share = self.system.progress(shop.folder / "src", shop.folder / "build")
        # Outside, a stranger's folder is elsewhere.
        inside, outside = f"{shop.inside}/", f"{shop.folder}/"

        def progress(line: str) -> float | None:
            return share(line.replace(inside, outside))

        self._run(shop, self.system.compile(build), output, work, cwd=build, progress=progress)

    def _prepare(self, shop: Workshop, output: BinaryIO) -> None:
        """Make the source tree, if there is none yet."""
        if shop.copied:
            # With what the tree remembers of its patches beside it, not what is for one build only.
            names = {entry.name for entry in os.scandir(shop.kept)} - {"staging", "ccache"}
            parts = [str(workshop.GIVEN / name) for name in sorted(names)]
            command = ["cp", "-a", "--no-preserve=ownership", "--reflink=auto", *parts]
            for line in shop.box.lines([*command, str(shop.inside)]):
                output.write(line)
        elif not (shop.folder / "src").is_dir():
            location = os.fsencode(self.source.location).decode(errors="replace")
            partial = [shop.folder / name for name in ("src.partial", "src.partial.top")]
            for path in (shop.folder / "src", *partial):
                scratch.remove(path)
            try:
                with sources.packed(self.source) as archive:
                    self._do(shop, Unpack(location, shop.inside / "src"), archive)
            finally:
                for path in partial:
                    scratch.remove(path)

    def _do(self, shop: Workshop, job: treejob.Job, stdin: BinaryIO | None = None) -> None:
        """Do something to the tree, where it is, and pass on what it says of that.

        LabError or MachineError with the job's words, where it cannot.
        """
        words = b""
        try:
            for line in shop.box.lines(
                treejob.command(job),
                variables=treejob.variables(),
                stdin=stdin or subprocess.DEVNULL,
            ):
                words = (words + line)[-4096:]
        except subprocess.CalledProcessError as error:
            text = foreign.printable(words.decode(errors="replace").strip())
            if error.returncode == MachineError.exit_code:
                raise MachineError(f"{text}; nothing was changed") from None
            raise LabError(text) from None
        for warning in foreign.printable(words.decode(errors="replace")).splitlines():
            say(f"warning: {warning}")

    def _run(
        self,
        shop: Workshop,
        command: list[str],
        output: BinaryIO,
        work: Work,
        *,
        cwd: Path | None = None,
        progress: Progress = lambda _: None,
    ) -> None:
        """Run a step of the build, its output to the log; CalledProcessError if it fails."""
        cc = self._flags.get("CC", "cc")
        environment = shop.variables | {
            "CC": cc if "ccache" in cc else f"ccache {cc}",
            "CCACHE_BASEDIR": str(shop.inside),
        }
        for line in shop.box.lines(command, cwd=cwd, variables=environment):
            output.write(line)
            share = progress(line.decode(errors="replace"))
            if share is not None:
                work.update(share, "compile")

    def _record(self, variant: str, patches: list[Patch], seconds: float, box: str) -> Build:
        applied = [AppliedPatch(patch.name, patch.sha256) for patch in patches]
        return Build(
            variant=variant,
            version=self.source.version,
            source=self.source.identity,
            source_kind=self.source.kind,
            patches=tuple(applied),
            build_system=self.system.name,
            options=tuple(self.system.options),
            compiler=self._compiler,
            flags=self._flags,
            key=self.key(applied),
            seconds=round(seconds, 1),
            built=utc(),
            sandbox=box,
        )

    def _keep(self, shop: Workshop, record: Build) -> Server:
        """Put the installed tree in its place in one step, with its build.json."""
        target = self.folder / record.variant
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f".{record.variant}.new"
        old = self.folder / f".{record.variant}.old"
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            foreign.copy(shop.folder, f"staging{PREFIX}", fresh, shop.owner)
            jsonfile.save(fresh / "build.json", record)
            shutil.rmtree(old, ignore_errors=True)
            if target.exists():
                target.rename(old)
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
        return Server(target, record, fresh=True)

    def _failure(
        self, variant: str, error: subprocess.CalledProcessError, log: Path
    ) -> LabError | MachineError:
        lines = log.read_text(errors="replace").splitlines()
        if any("No space left on device" in line for line in lines[-200:]):
            return MachineError(
                f"building {variant}: no space left on the device of {self._home} or "
                f"{self.folder}; a source needs about 2 GB there. Free some, or put the cache "
                "elsewhere with WALLAB_CACHE=DIRECTORY; then run this again"
            )
        tail = foreign.printable("\n  ".join(buildlog.telling(lines)))
        if any("fork: " in line or "Cannot fork" in line for line in lines):
            most = sandbox.default_limits().processes
            tail += f"\n(a build may have {most:,} processes and threads at a time)"
        step = " ".join(map(str, error.cmd[:2]))
        return LabError(f"building {variant}: “{step} …” failed:\n  {tail}\nThe whole log: {log}")


def servers_of(
    wanted: Iterable[tuple[str | None, str]], source_name: str, system: str
) -> dict[str, Server]:
    """Build the servers that cells ask for, each by source and variant.

    The source is the one named where a cell asks for none; the build system may be auto. Returned
    by variant, or source/variant where a cell named the source.
    """
    catalog = series.read()
    servers: dict[str, Server] = {}
    asked: dict[str | None, list[str]] = {}
    for name, variant in dict.fromkeys(wanted):
        asked.setdefault(name, []).append(variant)
    for name, variants in asked.items():
        source = resolve(name or source_name)
        builder = Builder(source, buildsystem.choose(system, source))
        built = builder.build(
            {variant: patches_of(catalog, variant, source) for variant in variants}
        )
        servers |= {server_name(name, server.build.variant): server for server in built}
    return servers
