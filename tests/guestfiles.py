"""Debian's kernel and busybox for a guest: fetched by apt, unpacked, nothing installed.

The packages' files stay in the lab's cache; a guest needs a few MB of them.
"""

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wallab import paths
from wallab.virtual import cpio, kernel

MODULES = (
    "virtio_pci", "9pnet_virtio", "9p", "ata_piix", "virtio_scsi", "megaraid_sas", "sd_mod", "nvme",
    "virtio_blk", "dm_mod", "raid1", "crc32c_generic", "ext4",
)  # fmt: skip
"""What the guest's kernel loads, in this order, each after what it depends on."""

STATE = "/run/state"
"""Where the lab in the guest keeps what must be undone; no reboot is survived there."""


def fetch() -> Path:
    """Return the folder with vmlinuz, busybox, modules/NAME.ko and their order in `order`.

    NotToBeHad where they cannot be fetched.
    """
    key = hashlib.sha256(" ".join(MODULES).encode()).hexdigest()[:16]
    kept = paths.cache() / "guest" / key
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="partial-") as name:
        chosen = kernel.choose("linux-image-amd64", MODULES, Path(name))
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
    contents: dict[str, bytes | None] = dict.fromkeys(("dev", "host", "modules"))
    contents |= {"busybox": (files / "busybox").read_bytes(), "init": script.encode()}
    for name in modules:
        contents[f"modules/{name}.ko"] = (files / "modules" / f"{name}.ko").read_bytes()
    return cpio.archive(contents)
