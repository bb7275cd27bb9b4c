"""Where a run's numbers come from: this machine, this lab, the drives' parameters."""

import os
import platform
from pathlib import Path

from wallab import __version__, paths
from wallab.drives import real
from wallab.errors import LabError
from wallab.record import axes
from wallab.record.driveprofile import profile
from wallab.record.experiment import Experiment
from wallab.record.manifest import Machine
from wallab.servers import git

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
        mitigations={hole.name: _first_line(str(hole)) for hole in sorted(holes.glob("*"))},
        python=platform.python_version(),
        tuning={name: value for name, file in _TUNING.items() if (value := _first_line(file))},
    )


def lab_state() -> dict[str, str]:
    """Return the lab's version, its commit and whether its files differ from that."""
    try:
        commit, changed = git.state(paths.LAB)
    except LabError:  # a copy without its history, or a machine without git
        commit, changed = "", False
    return {
        "version": __version__,
        "commit": commit or os.environ.get("WALLAB_REVISION", ""),
        "changed": "yes" if changed else "no",
    }


def titles(axes_of: dict[str, tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """Return how tables write the values of the axes (axis -> values), where that is otherwise."""
    named = {
        axis: {value: title for value in values if (title := axes.find(axis).shown(value)) != value}
        for axis, values in axes_of.items()
    }
    return {axis: of_axis for axis, of_axis in named.items() if of_axis}


def drive_parameters(experiment: Experiment) -> dict[str, dict[str, str]]:
    """Return the parameters of the experiment's drives; of real ones, what is found there."""
    parameters: dict[str, dict[str, str]] = {}
    for name, drive in experiment.drive.items():
        if drive.kind != "simulated":
            parameters[name] = {"kind": drive.kind} | real.describe(Path(drive.directory))
            continue
        for chosen in experiment.axes.get("profile", (drive.profile,)):
            title = f"{name} ({chosen})" if "profile" in experiment.axes else name
            parameters[title] = {"profile": chosen} | profile(chosen, drive.elevator)
    return parameters
