"""Debian's kernel and busybox for the guest: fetched by apt, unpacked into the cache."""

import hashlib
import lzma
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.progress import say
from wallab.virtual import packages
from wallab.virtual.packages import Apt, NotToBeHad

MODULES = (
    "nd_btt", "nd_pmem", "nfit", "erofs", "crc32c_intel", "fuse", "loop", "xfs", "ext4", "btrfs",
)  # fmt: skip
"""What the guest's kernel loads, in this order, each after what it depends on."""

_META = "linux-image-cloud-amd64"
_BUSYBOX = "busybox-static"


class Kernel(msgspec.Struct, frozen=True):
    """The unpacked files: vmlinuz, busybox, modules/NAME.ko in the order of `modules`."""

    folder: Path
    version: str
    """The kernel's own, such as 6.1.0-56-cloud-amd64."""
    modules: tuple[str, ...]
    versions: dict[str, str]
    """Debian package -> its version."""

    @property
    def image(self) -> Path:
        """What the emulator boots."""
        return self.folder / "vmlinuz"

    @property
    def busybox(self) -> Path:
        """The first program that runs."""
        return self.folder / "busybox"


def fetch(versions: Mapping[str, str] | None = None) -> Kernel:
    """Return the kernel of the cache, fetched if there is none; MachineError says what helps.

    That of these packages, if a kernel is among them; else the one that the archive has now, or
    had when this cache was asked for the first time.
    """
    wanted = {name: version for name, version in (versions or {}).items() if _is_ours(name)}
    newest = _folder({})
    if wanted and newest.exists() and (kernel := _kept(newest)).versions == wanted:
        return kernel
    kept = _folder(wanted)
    if not kept.exists():
        say(f"fetching {', '.join(wanted or (_META, _BUSYBOX))} for the virtual machine")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix="partial-") as name:
            try:
                chosen = choose(_META, MODULES, Path(name), wanted)
            except NotToBeHad as error:
                raise MachineError(
                    f"the virtual machine's kernel cannot be fetched ({error}); on Debian, as "
                    "root: apt-get update"
                ) from None
            if not kept.exists():
                chosen.rename(kept)
    return _kept(kept)


def _folder(versions: Mapping[str, str]) -> Path:
    asked = jsonfile.dumps([_META, MODULES, versions])
    return paths.cache() / "virtual" / f"kernel-{hashlib.sha256(asked).hexdigest()[:16]}"


def _kept(folder: Path) -> Kernel:
    return Kernel(
        folder,
        (folder / "version").read_text().strip(),
        tuple((folder / "order").read_text().split()),
        jsonfile.load(folder / "versions.json", dict[str, str]),
    )


def _is_ours(package: str) -> bool:
    return package == _BUSYBOX or package.startswith("linux-image-")


def choose(
    meta: str, modules: Sequence[str], folder: Path, versions: Mapping[str, str] | None = None
) -> Path:
    """Fetch the kernel that a package stands for, or the one of these versions, and busybox.

    Return a folder in `folder` with the kernel, the modules and what they depend on, the order to
    load them in, and both versions; NotToBeHad where that cannot be done.
    """
    versions = versions or {}
    names = sorted(versions)
    if not names:
        depends = Apt(folder).ask("apt-cache", "depends", meta)
        image = re.search(r"Depends: (linux-image-\S+)", depends)
        if image is None:
            raise NotToBeHad(f"apt knows no {meta}")
        names = [image[1], _BUSYBOX]
    unpacked = packages.unpack(names, versions, folder)
    whole, chosen = unpacked.folder, folder / "chosen"
    (chosen / "modules").mkdir(parents=True)
    (kernel,) = whole.glob("boot/vmlinuz-*")
    shutil.copyfile(kernel, chosen / "vmlinuz")
    shutil.copyfile(whole / "bin" / "busybox", chosen / "busybox")
    order = _copy_modules(modules, whole, chosen / "modules")
    (chosen / "order").write_text("\n".join(order) + "\n")
    (chosen / "version").write_text(kernel.name.removeprefix("vmlinuz-") + "\n")
    jsonfile.save(chosen / "versions.json", unpacked.versions)
    return chosen


def _copy_modules(names: Sequence[str], whole: Path, target: Path) -> list[str]:
    """Copy the modules and all that they depend on out of an unpacked kernel.

    Return their names in order of loading; NotToBeHad where it lacks one.
    """
    files = {file.name.split(".")[0].replace("-", "_"): file for file in whole.rglob("*.ko*")}
    (listed,) = whole.rglob("modules.builtin")
    builtin = {Path(line).stem.replace("-", "_") for line in listed.read_text().split()}
    order: list[str] = []

    def add(name: str) -> None:
        if name in order or name in builtin:
            return
        if name not in files:
            raise NotToBeHad(f"Debian's kernel has no module {name}")
        data = files[name].read_bytes()
        if files[name].suffix == ".xz":
            data = lzma.decompress(data)
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in depends[1].decode().split(",") if depends else []:
            if other:
                add(other.replace("-", "_"))
        (target / f"{name}.ko").write_bytes(data)
        order.append(name)

    for name in names:
        add(name)
    return order
