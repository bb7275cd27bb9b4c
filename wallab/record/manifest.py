"""manifest.json: everything about a run that can move its numbers, and that its samples lack."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from wallab import __version__, paths
from wallab.drives import real as realdrive
from wallab.drives.simulated import profile
from wallab.files import resultfolder
from wallab.record.cost import Cost, Session
from wallab.record.matrix import Cell, Experiment, Preset
from wallab.servers.builder import Build

FILE = "manifest.json"


class Machine(msgspec.Struct, frozen=True):
    """The machine that measured."""

    system: str
    kernel: str
    cpu: str
    cpus: int
    memory_kb: int
    governor: str
    mitigations: dict[str, str]
    python: str
    tuning: dict[str, str] = {}
    """Settings of the kernel that can move a number."""


_TUNING = {
    "clocksource": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "cpufreq driver": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
    "cpufreq boost": "/sys/devices/system/cpu/cpufreq/boost",
    "intel_pstate no_turbo": "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "SMT": "/sys/devices/system/cpu/smt/control",
    "transparent huge pages": "/sys/kernel/mm/transparent_hugepage/enabled",
    **{
        f"vm.{name}": f"/proc/sys/vm/{name}"
        for name in (
            "dirty_background_bytes", "dirty_background_ratio", "dirty_bytes",
            "dirty_expire_centisecs", "dirty_ratio", "dirty_writeback_centisecs", "nr_hugepages",
            "overcommit_memory", "swappiness", "zone_reclaim_mode",
        )
    },
}  # fmt: skip


class NotApplicable(msgspec.Struct, frozen=True):
    """A cell that is N/A, and why."""

    cell: Cell
    reason: str


class Manifest(msgspec.Struct):
    """manifest.json."""

    name: str
    preset_name: str
    started: str
    seed: int
    lab: dict[str, str]
    """Version and git state of the lab."""
    machine: Machine
    experiment: Experiment
    preset: Preset
    cells: tuple[Cell, ...]
    builds: dict[str, Build]
    """Variant, or source/variant where the source is an axis -> its server."""
    methods: dict[str, tuple[str, ...]]
    """As builds -> its values of wal_sync_method; a cell without one is N/A."""
    drives: dict[str, dict[str, str]]
    """Drive -> the parameters of its profile."""
    drive_program: str = ""
    """SHA-256 of the program that simulates the drives; empty for real ones."""
    not_applicable: tuple[NotApplicable, ...] = ()
    """Cells that this machine or their server cannot do; beside those that lack their method."""
    template: dict[str, Any] = {}
    """What was found out about the cluster that every cell starts from."""
    sessions: list[Session] = []
    cost: Cost | None = None
    """Brought up to date after each round."""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""


def machine() -> Machine:
    """Describe this machine."""
    cpu = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    holes = Path("/sys/devices/system/cpu/vulnerabilities")
    memory = Path("/proc/meminfo").read_text().split()[1]
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = platform.system()
    return Machine(
        system=system,
        kernel=f"{platform.release()} {platform.version()}",
        cpu=cpu,
        cpus=len(os.sched_getaffinity(0)),
        memory_kb=int(memory),
        governor=_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        mitigations={one.name: _first_line(str(one)) for one in sorted(holes.glob("*"))},
        python=platform.python_version(),
        tuning={name: said for name, file in _TUNING.items() if (said := _first_line(file))},
    )


def lab_state() -> dict[str, str]:
    """Return the lab's version, its commit and whether its files differ from that."""
    git = ["git", "-c", f"safe.directory={paths.LAB}", "-C", str(paths.LAB)]

    def ask(*arguments: str) -> str:
        try:
            result = subprocess.run([*git, *arguments], capture_output=True, text=True)
        except OSError:
            return ""
        return result.stdout.strip() if result.returncode == 0 else ""

    changed = ask("status", "--porcelain", "--untracked-files=no")
    return {
        "version": __version__,
        "commit": ask("rev-parse", "HEAD") or os.environ.get("WALLAB_REVISION", ""),
        "changed": "yes" if changed else "no",
    }


def drive_parameters(experiment: Experiment) -> dict[str, dict[str, str]]:
    """Return the parameters of the experiment's drives; of real ones, what is found there."""
    found: dict[str, dict[str, str]] = {}
    for name, drive in experiment.drive.items():
        if drive.kind != "simulated":
            found[name] = {"kind": drive.kind} | realdrive.describe(Path(drive.directory))
            continue
        for chosen in experiment.axes.get("profile", (drive.profile,)):
            shown = f"{name} ({chosen})" if "profile" in experiment.axes else name
            found[shown] = {"profile": chosen} | profile(chosen)
    return found


def load(run: Path) -> Manifest:
    """Read the manifest of a run; LabError if that is no run."""
    return resultfolder.load(run, FILE, Manifest, "run of the lab")
