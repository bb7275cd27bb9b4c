"""A simulated drive behind nbdkit: started, waited for, and ended."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from wallab.drives.control import DriveControl

PATIENCE = 120
"""Seconds that nbdkit may take to start or to end."""


def start(plugin: Path, folder: Path, *settings: str) -> subprocess.Popen[str]:
    """Start nbdkit with the plugin; its socket is folder/nbd, the drive's folder/control.

    It writes folder/pid when it listens; the socket is there a moment before.
    """
    return subprocess.Popen(
        ["nbdkit", "--foreground", "--exit-with-parent", "--unix", folder / "nbd",
         "--pidfile", folder / "pid", plugin, f"control={folder / 'control'}", *settings],
        stderr=subprocess.PIPE, text=True, env=os.environ | loading(plugin),
    )  # fmt: skip


def loading(plugin: Path) -> dict[str, str]:
    """What a plugin with the sanitizers wants set: nbdkit itself does not load their library.

    It comes before all others. What nbdkit leaves to the end of its process is no leak of ours.
    """
    library = re.search(rb"libasan\.so\.\d+", plugin.read_bytes())
    if not library:
        return {}
    return {"LD_PRELOAD": library[0].decode(), "ASAN_OPTIONS": "detect_leaks=0"}


@contextlib.contextmanager
def serving(plugin: Path, folder: Path, *settings: str) -> Iterator[DriveControl]:
    """Serve a drive at folder/nbd, and yield a connection to its control socket."""
    (folder / "pid").unlink(missing_ok=True)
    server = start(plugin, folder, *settings)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (folder / "pid").exists():
            assert server.poll() is None, server.communicate()[1]
            assert time.monotonic() < deadline, "nbdkit did not start"
            time.sleep(0.02)
        with contextlib.closing(DriveControl(folder / "control")) as control:
            yield control
    finally:
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0, errors
    assert not (folder / "control").exists()
