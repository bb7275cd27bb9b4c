"""Debian's kernel and busybox for the guest: fetched by apt, unpacked into the cache."""

import hashlib
import lzma
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import MachineError
from wallab.progress import say

MODULES = (
    "nd_btt", "nd_pmem", "nfit", "erofs", "crc32c_intel", "fuse", "loop", "xfs", "ext4", "btrfs",
)  # fmt: skip
"""What the guest's kernel loads, in this order, each after what it depends on."""

_META = "linux-image-cloud-amd64"
_SLOW = 1800
"""Seconds that fetching a package may take."""


class Kernel(msgspec.Struct, frozen=True):
    """The unpacked files: vmlinuz, busybox, modules/NAME.ko in the order of `modules`."""

    folder: Path
    version: str
    """The package's, such as 6.1.0-56-cloud-amd64."""
    modules: tuple[str, ...]

    @property
    def image(self) -> Path:
        """What the emulator boots."""
        return self.folder / "vmlinuz"

    @property
    def busybox(self) -> Path:
        """The first program that runs."""
        return self.folder / "busybox"


class _NotToBeHadError(Exception):
    """A command failed; the message has its last words."""


def fetch() -> Kernel:
    """Return the kernel of the cache, fetched if there is none; MachineError says what helps."""
    key = hashlib.sha256(" ".join((_META, *MODULES)).encode()).hexdigest()[:16]
    kept = paths.cache() / "virtual" / f"kernel-{key}"
    if not kept.exists():
        say(f"fetching {_META} and busybox-static for the virtual machine")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix="partial-") as name:
            try:
                chosen = _unpacked(Path(name))
            except _NotToBeHadError as error:
                raise MachineError(
                    f"the virtual machine's kernel cannot be fetched ({error}); on Debian, as "
                    "root: apt-get update"
                ) from None
            if not kept.exists():
                chosen.rename(kept)
    modules = tuple((kept / "order").read_text().split())
    return Kernel(kept, (kept / "version").read_text().strip(), modules)


def _run(command: Sequence[str | Path], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_SLOW, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        words = str(getattr(error, "stderr", None) or error).strip()
        raise _NotToBeHadError(f"{' '.join(map(str, command[:3]))}: {words[-300:]}") from None
    return done.stdout


def _unpacked(folder: Path) -> Path:
    """Fetch the packages into the folder; return a folder in it with what the guest needs."""
    depends = _run(["apt-cache", "depends", _META], folder)
    image = re.search(r"Depends: (linux-image-\S+)", depends)
    if image is None:
        raise _NotToBeHadError(f"apt knows no {_META}")
    _run(["apt-get", "-qq", "download", image[1], "busybox-static"], folder)
    whole, chosen = folder / "whole", folder / "chosen"
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "--extract", package, whole], folder)
    (chosen / "modules").mkdir(parents=True)
    (kernel,) = whole.glob("boot/vmlinuz-*")
    shutil.copyfile(kernel, chosen / "vmlinuz")
    shutil.copyfile(whole / "bin" / "busybox", chosen / "busybox")
    order = _copy_modules(whole, chosen / "modules")
    (chosen / "order").write_text("\n".join(order) + "\n")
    (chosen / "version").write_text(kernel.name.removeprefix("vmlinuz-") + "\n")
    return chosen


def _copy_modules(whole: Path, target: Path) -> list[str]:
    """Copy the modules and all that they depend on; return their names in order of loading."""
    files = {file.name.split(".")[0].replace("-", "_"): file for file in whole.rglob("*.ko*")}
    (listed,) = whole.rglob("modules.builtin")
    builtin = {Path(line).stem.replace("-", "_") for line in listed.read_text().split()}
    order: list[str] = []

    def add(name: str) -> None:
        if name in order or name in builtin:
            return
        if name not in files:
            raise _NotToBeHadError(f"Debian's kernel has no module {name}")
        data = files[name].read_bytes()
        if files[name].suffix == ".xz":
            data = lzma.decompress(data)
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in depends[1].decode().split(",") if depends else []:
            if other:
                add(other.replace("-", "_"))
        (target / f"{name}.ko").write_bytes(data)
        order.append(name)

    for name in MODULES:
        add(name)
    return order
