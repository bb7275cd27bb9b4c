"""What the guest runs: the lab's own modules, its drive and the tools, as one image; servers each.

Nothing of it but contents counts: paths of this machine, times and owners are left out.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from wallab import paths
from wallab.errors import MachineError
from wallab.files.digest import sha256
from wallab.machine import provision, serversandbox
from wallab.machine.confinement import Places
from wallab.virtual import cpio, devices, erofs, packages
from wallab.virtual.erofs import Entry
from wallab.virtual.kernel import Kernel
from wallab.virtual.packages import NotToBeHad, Unpacked
from wallab.virtual.python import NAME, Python

PYTHON = "/usr/bin/python"
LAB = "lab"
SITE = f"{LAB}/site"
CACHE = f"{LAB}/cache"
SERVER = "server"
"""Where a server's image is mounted, and `tree` in it."""

_PACKAGES = (
    "msgspec", "psutil", "psycopg", "psycopg_binary", "rich", "pygments", "markdown_it", "mdurl",
    "typing_extensions",
)  # fmt: skip
"""Of Python, that the lab's bench imports."""

_WITHOUT = ("test", "tests", "idlelib", "ensurepip", "tkinter", "lib2to3",
            "site-packages", "turtledemo", "pydoc_data")  # fmt: skip
_LEFT_OUT = re.compile(
    r"\.(pyc|a|o)$|^(sitecustomize\.py$|_tkinter|_test|_ctypes_test|_xxtest|xxlimited|nis\."
    # Nothing imports them in the guest, and they take libraries that are often replaced.
    r"|(_hashlib|_bz2|_lzma|_uuid|_sqlite3|_curses|_curses_panel|_dbm|_gdbm|_crypt|readline|ossaudiodev)\.)"
)
_PROGRAMS = (
    "cat", "fincore", "find", "mkdir", "mkfs.btrfs", "mkfs.ext4", "mkfs.xfs", "mount", "nsenter",
    "setpriv", "taskset", "umount", "unshare",
)  # fmt: skip
_FETCHED = {"mkfs.btrfs": "btrfs-progs", "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs"}
"""Those that a user who may install nothing may lack -> their Debian packages."""
_DEBIANS = ("btrfs-progs", "coreutils", "e2fsprogs", "findutils", "libc6", "libfuse3-3", "mount",
            "util-linux", "util-linux-extra", "xfsprogs")  # fmt: skip
_BUSYBOX = ("sh", "cp", "true", "losetup", "modprobe")
"""Where nothing depends on which program of that name it is."""

_ELSEWHERE = "LD_LIBRARY_PATH"

_SERVER_PROGRAMS = ("postgres", "initdb", "pgbench", "psql")
_USER = 999


class Image(msgspec.Struct, frozen=True):
    """A file in the cache, and what it is."""

    path: Path
    sha256: str


def root(kernel: Kernel, python: Python) -> Image:
    """Return the root file system; MachineError names the program that this machine lacks."""
    return _kept("root", _root(kernel, python), devices.ROOT_MB)


def server(tree: Path) -> Image:
    """Return an installed server with the libraries of this machine that it needs."""
    return _kept("server", _server(tree), devices.SERVER_MB)


def versions() -> dict[str, str]:
    """Return the versions of the Debian packages that most of the root file system is from."""
    tools = _tools()
    return packages.installed(_DEBIANS) | (tools.versions if tools else {})


def first(kernel: Kernel) -> bytes:
    """Return the first file system, which only mounts the image."""
    script = f"""#!/busybox sh
for name in {" ".join(kernel.modules)}; do /busybox insmod /modules/$name.ko; done
/busybox mount -t devtmpfs devtmpfs /dev
/busybox mount -t sysfs sysfs /sys
for device in pmem0 pmem1 pmem2; do
    read size < /sys/block/$device/size
    [ $size = {(devices.ROOT_MB << 20) // 512} ] && root=$device
done
/busybox umount /sys
/busybox mount -t erofs -o ro /dev/$root /root
/busybox mount -t proc proc /root/proc
/busybox mount -t sysfs sysfs /root/sys
/busybox mount -t devtmpfs devtmpfs /root/dev
/busybox mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
echo +memory > /root/sys/fs/cgroup/cgroup.subtree_control
/busybox mkdir /root/dev/shm /root/dev/pts
/busybox mount -t devpts devpts /root/dev/pts
for place in run tmp dev/shm; do /busybox mount -t tmpfs -o mode=1777 tmpfs /root/$place; done
export PATH=/usr/sbin:/usr/bin HOME=/run TMPDIR=/tmp LC_ALL=C.UTF-8 PYTHONHOME=/usr
export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/{LAB}:/{SITE} WALLAB_CACHE=/{CACHE}
exec /busybox switch_root /root {PYTHON} -m wallab.virtual.agent </dev/console >/dev/console 2>&1
"""
    files: dict[str, bytes | None] = dict.fromkeys(("dev", "modules", "root", "sys"))
    files |= {"busybox": kernel.busybox.read_bytes(), "init": script.encode()}
    for name in kernel.modules:
        files[f"modules/{name}.ko"] = (kernel.folder / f"modules/{name}.ko").read_bytes()
    return cpio.archive(files)


def _kept(what: str, tree: dict[str, Entry], megabytes: int) -> Image:
    """Return the tree's image, of so many MB, from the cache or written to it.

    Programs are in it as they are loaded, and so the same wherever they were compiled.
    """
    tree = {path: msgspec.structs.replace(entry, loaded=True) for path, entry in tree.items()}
    key = hashlib.sha256()
    for path, entry in sorted(tree.items()):
        digest = hashlib.sha256(entry.content()).digest()
        key.update(f"{path}\0{entry.mode:o}\0".encode() + digest)
    folder = paths.cache() / "virtual" / f"{what}-{key.hexdigest()[:16]}"
    image, stamp = folder / "image", folder / "sha256"
    if not stamp.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as name:
            made = Path(name) / "made"
            made.mkdir()
            with (made / "image").open("wb") as stream:
                erofs.write(tree, stream)
                # The device is larger than what is in it.
                if stream.seek(0, os.SEEK_END) > megabytes << 20:
                    raise MachineError(f"the image of {what} takes more than {megabytes} MB")
                stream.truncate(megabytes << 20)
            (made / "sha256").write_text(sha256(made / "image"))
            if not folder.exists():
                made.rename(folder)
    return Image(image, stamp.read_text())


def _root(kernel: Kernel, python: Python) -> dict[str, Entry]:
    tree: dict[str, Entry] = {
        name: Entry()
        for name in ("dev", "proc", "sys", "run", "tmp", SERVER, "usr/lib/x86_64-linux-gnu")
    }
    tree |= {
        "bin": Entry(link="usr/bin"),
        "sbin": Entry(link="usr/sbin"),
        # Where the loader looks after the root's own: a server brings what it needs.
        "lib": Entry(link=f"{SERVER}/lib"),
        "lib64/ld-linux-x86-64.so.2": Entry(link="/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
        "etc/passwd": Entry(
            text=b"root:x:0:0::/run:/bin/sh\n%s:x:%d:%d::/run:/bin/sh\n"
            % (provision.SERVER_USER.encode(), _USER, _USER)
        ),
        "etc/group": Entry(text=b"root:x:0:\n%s:x:%d:\n" % (provision.SERVER_USER.encode(), _USER)),
        "etc/os-release": Entry(text=b'PRETTY_NAME="the lab\'s guest"\n'),
        "etc/mtab": Entry(link="/proc/self/mounts"),
        PYTHON[1:]: Entry(file=python.program, executable=True),
        "usr/bin/busybox": Entry(file=kernel.busybox, executable=True),
    }
    for name in _BUSYBOX:
        tree[f"usr/bin/{name}"] = Entry(link="busybox")
    tools = _tools()
    for name in _PROGRAMS:
        tree[f"usr/bin/{name}"] = Entry(file=_program(name, tools), executable=True)
    tree |= _folder(python.library, f"usr/lib/{NAME}", _WITHOUT)
    for name in _PACKAGES:
        tree |= _package(name)
    for file in _modules():
        tree[f"{LAB}/{file.relative_to(paths.LAB)}"] = Entry(file=file)
    for folder in (paths.DRIVE, paths.DIRECT_CP):
        tree |= _folder(folder, f"{LAB}/{folder.name}")
    for program in (provision.drive_program(), provision.copy_program()):
        if not program.exists():
            raise MachineError(f"there is no {program.name}; run: scripts/setup drive")
        place = program.relative_to(paths.cache())
        tree[f"{CACHE}/{place}"] = Entry(file=program, executable=True)
    files = [entry.file for entry in tree.values() if entry.file]
    environments = [python.environment, tools.environment if tools else {}]
    for library in _libraries((file for file in files if _is_elf(file)), environments):
        if not any(library.is_relative_to(place) for place in (python.library, paths.LAB)):
            tree[f"usr/lib/x86_64-linux-gnu/{library.name}"] = Entry(
                file=library.resolve(), executable=True
            )
    return tree


def _server(tree: Path) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for name in _SERVER_PROGRAMS:
        entries[f"tree/bin/{name}"] = Entry(file=tree / "bin" / name, executable=True)
    entries |= {
        path: entry
        for path, entry in _folder(tree / "lib", "tree/lib").items()
        if re.search(r"\.so(\.\d+)*$", path)
    }
    entries |= {
        path: entry
        for path, entry in _folder(tree / "share", "tree/share").items()
        if not re.match(r"tree/share/(doc|man|locale|postgresql/(doc|man|locale))/", path)
    }
    if not (tree / "bin" / "postgres").exists():
        raise MachineError(f"{tree} is no installed server")
    programs = [entry.file for entry in entries.values() if entry.file and _is_elf(entry.file)]
    for library in _libraries(programs, tree=tree):
        # The C library is the root's.
        if not library.is_relative_to(tree) and not re.match(
            r"(ld-linux|lib(c|m|dl|rt|pthread)\.so)", library.name
        ):
            entries[f"lib/{library.name}"] = Entry(file=library.resolve(), executable=True)
    entries.setdefault("lib/empty", Entry(text=b""))
    return entries


def _installed(name: str) -> Path | None:
    place = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return Path(place).resolve() if place else None


def _tools() -> Unpacked | None:
    """Return the tools of file systems that are not installed here, unpacked; None: all are."""
    missing = [package for name, package in _FETCHED.items() if _installed(name) is None]
    if not missing:
        return None
    try:
        return packages.kept("tools", sorted(missing), {})
    except NotToBeHad as error:
        raise MachineError(
            f"the virtual machine takes {', '.join(missing)}, which cannot be fetched ({error}); "
            f"as root, run: apt-get install {' '.join(missing)}"
        ) from None


def _program(name: str, tools: Unpacked | None) -> Path:
    place = _installed(name) or (tools.program(name) if tools else None)
    if place is None:
        raise MachineError(f"there is no {name}; run: scripts/setup drive")
    return place.resolve()


def _folder(folder: Path, place: str, without: Sequence[str] = ()) -> dict[str, Entry]:
    """Return the files below the folder at another place, but what is compiled or left out."""
    entries: dict[str, Entry] = {}
    for above, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in without and name != "__pycache__" and not name.startswith("config-")
        ]
        for name in names:
            file = Path(above) / name
            path = f"{place}/{file.relative_to(folder)}"
            if file.is_symlink() and "/" not in str(file.readlink()):
                entries[path] = Entry(link=str(file.readlink()))
            elif file.is_file() and not _LEFT_OUT.search(name):
                entries[path] = Entry(file=file, executable=os.access(file, os.X_OK))
    return entries


def _modules() -> list[Path]:
    """Return the lab's modules that the guest imports: others change, and no sample does."""
    asked = (
        "import sys, wallab.virtual.agent\n"
        "print(*(file for name, module in sys.modules.items() if name.split('.')[0] == 'wallab' "
        "and (file := module.__file__)), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=paths.LAB, capture_output=True, text=True
    )
    if done.returncode:
        raise MachineError(f"the guest's agent cannot be imported: {done.stderr[-500:]}")
    return sorted(Path(line) for line in done.stdout.splitlines())


def _package(name: str) -> dict[str, Entry]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise MachineError(f"Python's package {name} is missing; run: scripts/setup")
    origin = Path(spec.origin)
    if origin.name != "__init__.py":
        return {f"{SITE}/{origin.name}": Entry(file=origin)}
    entries = _folder(origin.parent, f"{SITE}/{name}", ("tests",))
    libraries = origin.parent.with_name(f"{name}.libs")
    if libraries.is_dir():
        entries |= _folder(libraries, f"{SITE}/{libraries.name}")
    return entries


def _is_elf(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _libraries(
    programs: Iterable[Path],
    environments: Sequence[Mapping[str, str]] = (),
    tree: Path | None = None,
) -> list[Path]:
    """Return the shared libraries that the programs need, as this machine's loader finds them.

    `environments` say where else it looks. The programs of an installed tree are strangers', whose
    code the loader runs if they name a library for audits (ld.so(8), LD_AUDIT and DT_AUDIT).
    """
    libraries: set[Path] = set()
    ordered = sorted(set(programs))
    places = [known[_ELSEWHERE] for known in environments if _ELSEWHERE in known]
    elsewhere = {_ELSEWHERE: ":".join(places)} if places else {}
    for begin in range(0, len(ordered), 50):
        command: list[str | Path] = ["ldd", *ordered[begin : begin + 50]]
        if tree is None:
            environment = os.environ | elsewhere
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            printed = done.stdout
        else:
            walls, seen = serversandbox.confinement(guest=False), Places(readable=(tree,))
            with walls.started(command, seen, stdout=subprocess.PIPE) as child:
                printed = child.communicate()[0].decode(errors="replace")
        libraries |= set(map(Path, re.findall(r"(?:=>|^)\s+(/\S+)", printed, re.MULTILINE)))
    return sorted(path for path in libraries if ".libs/" not in str(path))
