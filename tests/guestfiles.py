"""Debian's kernel and busybox for a guest: fetched by apt, unpacked, nothing installed.

The packages' files stay in the lab's cache; a guest needs a few MB of them.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wallab import paths
from wallab.virtual import cpio
from wallab.virtual.kernel import NotToBeHad, copy_modules

MODULES = (
    "virtio_pci", "9pnet_virtio", "9p", "ata_piix", "virtio_scsi", "megaraid_sas", "sd_mod", "nvme",
    "virtio_blk", "dm_mod", "raid1", "crc32c_generic", "ext4",
)  # fmt: skip
"""What the guest's kernel loads, in this order, each after what it depends on."""

STATE = "/run/state"
"""Where the lab in the guest keeps what must be undone; no reboot is survived there."""

_SLOW = 1800
"""Seconds that fetching a package may take."""


def _run(command: Sequence[str | Path], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_SLOW, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = str(getattr(error, "stderr", None) or error).strip()
        raise NotToBeHad(f"{' '.join(map(str, command[:3]))}: {message[-300:]}") from None
    return done.stdout


def _download(folder: Path) -> None:
    """Fetch the packages into the folder, and unpack them there."""
    depends = _run(["apt-cache", "depends", "linux-image-amd64"], folder)
    image = re.search(r"Depends: (linux-image-\S+)", depends)
    if image is None:
        raise NotToBeHad("apt knows no linux-image-amd64")
    _run(["apt-get", "-qq", "download", image[1], "busybox-static"], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "--extract", package, folder], folder)


def fetch() -> Path:
    """Return the folder with vmlinuz, busybox, modules/NAME.ko and their order in `order`."""
    key = hashlib.sha256(" ".join(MODULES).encode()).hexdigest()[:16]
    kept = paths.cache() / "guest" / key
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="partial-") as name:
        unpacked, chosen = Path(name, "unpacked"), Path(name, "chosen")
        unpacked.mkdir()
        try:
            _download(unpacked)
        except NotToBeHad:
            _run(["apt-get", "-qq", "update"], unpacked)  # its lists are missing or old
            _download(unpacked)
        (chosen / "modules").mkdir(parents=True)
        (kernel,) = unpacked.glob("boot/vmlinuz-*")
        shutil.copyfile(kernel, chosen / "vmlinuz")
        busybox = next(file for file in unpacked.rglob("bin/busybox") if not file.is_symlink())
        shutil.copyfile(busybox, chosen / "busybox")
        order = copy_modules(MODULES, unpacked, chosen / "modules")
        (chosen / "order").write_text("\n".join(order) + "\n")
        if not kept.exists():
            chosen.rename(kept)
    return kept


def initramfs(files: Path, command: Sequence[str | Path]) -> bytes:
    """Return a first file system whose init runs the command in the host's, shared read-only."""
    modules = (files / "order").read_text().split()
    script = f"""#!/busybox sh
set -e
for name in {" ".join(modules)}; do /busybox insmod /modules/$name.ko; done
/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 host /host
/busybox mount -t proc proc /host/proc
/busybox mount -t sysfs sysfs /host/sys
/busybox mount -t devtmpfs devtmpfs /host/dev
/busybox mount -t tmpfs tmpfs /host/run
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run LC_ALL=C.UTF-8
export WALLAB_STATE={STATE}
exec /busybox chroot /host {" ".join(map(str, command))}
"""
    entries = [cpio.entry(folder, 0o040755) for folder in ("dev", "host", "modules")]
    entries.append(cpio.entry("dev/console", 0o020600, device=(5, 1)))
    entries.append(cpio.entry("busybox", 0o100755, (files / "busybox").read_bytes()))
    entries.append(cpio.entry("init", 0o100755, script.encode()))
    entries += [
        cpio.entry(f"modules/{name}.ko", 0o100644, (files / "modules" / f"{name}.ko").read_bytes())
        for name in modules
    ]
    return b"".join([*entries, cpio.end()])
