"""What the lab that uses this runtime folder owns on this machine."""

import contextlib
import time
from pathlib import Path

import psutil

from wallab import paths
from wallab.errors import MachineError
from wallab.machine import ledger, loop


def _stuck(process: psutil.Process) -> bool:
    """Whether a drive's server, its command line gone already, still has threads that live."""
    for task in Path(f"/proc/{process.pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            # A zombie's parent may be slow to fetch the exit code.
            if (task / "stat").read_text().rsplit(") ", 1)[1][0] != "Z":
                return True
    return False


def _records() -> list[Path]:
    """Return the records of dead runs; all of them where another user ran the lab."""
    try:
        return ledger.dead()
    except MachineError:  # their records are not followed, and none is expected
        return [*paths.runtime().glob("*.json"), *paths.state().glob("*.json")]


def leftovers() -> dict[str, list[str]]:
    """Loop devices, mounts, processes and folders; other labs on the machine are not looked at."""
    runtime = str(paths.runtime())
    processes = []
    for process in psutil.process_iter(["name", "cmdline"]):
        words = process.info["cmdline"] or []
        named = any(word.startswith(f"{runtime}/") for word in words)
        if named or (not words and process.info["name"] == "wal-drive" and _stuck(process)):
            processes.append(f"{process.pid} {process.info['name']}")
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return {
        "loops": [device.name for device in Path("/dev").glob("loop[0-9]*")
                  if loop.name_of(device).startswith(f"{runtime}/")],
        "mounts": [line for line in mounts if f"{runtime}/" in line],
        "processes": processes,
        "folders": [str(path) for path in {*Path(runtime).glob("*"), *_records()}],
    }  # fmt: skip


def wait_for_nothing(patience: float = 30) -> dict[str, list[str]]:
    """Wait until the lab owns nothing any more; return what it still owns then."""
    deadline = time.monotonic() + patience
    while any(leftovers().values()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return {kind: things for kind, things in leftovers().items() if things}
