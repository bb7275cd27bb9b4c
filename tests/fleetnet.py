"""Hosts as network namespaces on a bridge, itself in one: all of it goes with its processes."""

import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest

from wallab.machine import process

DELAY_MS = 5
_PATIENCE = 60


def lacking() -> str:
    """Say why there can be no such network here; nothing if there can."""
    if refused := process.namespaces_refused("--net"):
        return f"needs network namespaces: {refused}"
    with Net(1) as net:
        return net.refused


class Net:
    """So many hosts, 10.77.0.1 and on; their links have a delay where the kernel has netem."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._spaces: list[subprocess.Popen[bytes]] = []
        self.refused = ""
        """Why it could not be made."""

    def __enter__(self) -> "Net":
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.refused = f"needs a bridge and veth: {error.stderr.strip()}"
        return self

    def _make(self) -> None:
        self._spaces.append(_space())
        self._in(0, "ip link add hub0 type bridge")
        self._in(0, "ip link set hub0 up")
        for host in range(1, self._count + 1):
            self._spaces.append(_space())
            there = self._spaces[host].pid
            self._in(0, f"ip link add port{host} type veth peer name eth0 netns {there}")
            self._in(0, f"ip link set port{host} master hub0 up")
            self._in(host, f"ip addr add {self.address(host)}/24 dev eth0")
            self._in(host, "ip link set eth0 up")
            self._in(host, "ip link set lo up")
            netem = f"tc qdisc add dev eth0 root netem delay {DELAY_MS}ms"
            subprocess.run([*self.enter(host), *netem.split()], capture_output=True)

    def address(self, host: int) -> str:
        """Return a host's address; they are counted from 1."""
        return f"10.77.0.{host}"

    def enter(self, host: int) -> list[str]:
        """Return what goes before a command on a host."""
        return ["nsenter", f"--net=/proc/{self._spaces[host].pid}/ns/net"]

    def _in(self, host: int, command: str) -> None:
        words = [*self.enter(host), *command.split()]
        subprocess.run(words, check=True, capture_output=True, text=True)

    def cut(self, host: int) -> None:
        """Take a host's link away."""
        self._in(0, f"ip link set port{host} down")

    def mend(self, host: int) -> None:
        """Give the link back."""
        self._in(0, f"ip link set port{host} up")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for space in self._spaces:
            process.end_group(space)


def _space() -> subprocess.Popen[bytes]:
    """Start what a namespace lives with."""
    ours = Path("/proc/self/ns/net").readlink()
    child = process.spawn(["unshare", "--net", "sleep", "infinity"])
    deadline = time.monotonic() + _PATIENCE
    while Path(f"/proc/{child.pid}/ns/net").readlink() == ours:
        if time.monotonic() > deadline:
            pytest.fail("unshare made no namespace")
        time.sleep(0.01)
    return child
