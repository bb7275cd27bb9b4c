"""How fast the guest's processor is: powers of two by the emulator, the rest by control groups."""

from fractions import Fraction
from pathlib import Path

from wallab.errors import MachineError

FASTEST = 1000
"""MIPS at which an instruction takes a nanosecond."""

_GROUPS = Path("/sys/fs/cgroup")
_SHORTEST_US = 1000
"""The kernel takes no shorter quota, nor period (kernel/sched/core.c, min_cfs_quota_period)."""


def shift(mips: int) -> int:
    """Return the binary logarithm of the ns that an instruction takes, for that or a bit faster.

    From 1 to `FASTEST` MIPS; QEMU's icount takes shifts up to 10.
    """
    shift = 0
    while mips << (shift + 1) <= FASTEST:
        shift += 1
    return shift


def share(mips: int) -> tuple[int, int] | None:
    """Return the quota and the period (µs) that make so many MIPS of the shift's; None: all.

    The shortest that there are: more than half of the processor's time is left to who works.
    """
    whole = Fraction(FASTEST, 1 << shift(mips))
    if mips == whole:
        return None
    return _SHORTEST_US, round(_SHORTEST_US * whole / mips)


def limit(pid: int, mips: int) -> Path | None:
    """Slow a process, and all that it starts from now on, down to so many MIPS, in the guest.

    The kernel and processes that run already, such as drives, keep the whole processor. Return the
    control group in which further groups can limit memory; None where nothing is to be done.
    MachineError where the kernel does not do it.
    """
    if (times := share(mips)) is None:
        return None
    slow = _GROUPS / "slow"
    quota = " ".join(map(str, times))
    try:
        (_GROUPS / "cgroup.subtree_control").write_text("+cpu")
        slow.mkdir()
        (slow / "cpu.max").write_text(quota)
        # A group with processes of its own can have none below that limit memory.
        (slow / "cgroup.subtree_control").write_text("+memory")
        (slow / "rest").mkdir()
        (slow / "rest" / "cgroup.procs").write_text(str(pid))
        taken = (slow / "cpu.max").read_text().strip()
    except OSError as error:
        raise MachineError(f"the guest cannot do {mips} MIPS: {error}") from None
    if taken != quota:
        raise MachineError(f"the guest cannot do {mips} MIPS: its kernel says {taken}, not {quota}")
    return slow
