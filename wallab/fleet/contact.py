"""Where a fleet's scheduler is, and how one speaks with it: with a key, or on this machine alone.

No part of Dask is imported here, so that commands can tell what is wrong before that is.
"""

import importlib.util
import ipaddress
import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path

import msgspec

from wallab.errors import LabError, MachineError

PORT = 8786
"""Dask's own."""

_ADDRESS = re.compile(r"(?:(tcp|tls)://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]*)(?::(\d{1,5}))?")
_DAYS = 3650


class Contact(msgspec.Struct, frozen=True):
    """A scheduler's address, and the key that all of a fleet have; None: nothing is encrypted."""

    host: str
    port: int
    key: Path | None

    @property
    def address(self) -> str:
        """It as Dask takes it."""
        return f"{'tls' if self.key else 'tcp'}://{self.host}:{self.port}"


def default_key() -> Path:
    """Return where the key of this user's fleet is: $WALLAB_FLEET_KEY, or below ~/.config."""
    if own := os.environ.get("WALLAB_FLEET_KEY"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "wal-lab" / "fleet.pem"


def contact(address: str, key: Path | None, *, insecure: bool, make: bool = False) -> Contact:
    """Read an address as users type it: tcp://HOST:8786, or HOST.

    Beyond the loopback it takes a key: the one named, or the default one, made with `make`.
    LabError says what does not fit.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[3] or PORT) < 65536:
        raise LabError(f"{address}: expected an address such as tcp://HOST:{PORT}")
    scheme, host, port = match[1], match[2] or "0.0.0.0", int(match[3] or PORT)  # noqa: S104
    if insecure:
        if key or scheme == "tls":
            raise LabError("--insecure: goes without a key and without tls://")
        return Contact(host, port, None)
    if key is None:
        if is_loopback(host) and scheme != "tls":
            return Contact(host, port, None)
        key = default_key()
    if not key.exists():
        if not make:
            raise LabError(
                f"{address}: beyond this machine a fleet takes a key, and there is no {key}: copy "
                "it from the host of the scheduler, where scripts/scheduler makes it"
            )
        make_key(key)
    mode = stat.S_IMODE(key.stat().st_mode)
    if mode & 0o077:
        raise LabError(f"{key}: others can read this key (mode {mode:o}); run: chmod 600 {key}")
    return Contact(host, port, key.absolute())


def check_dask() -> None:
    """MachineError where Dask, which fleets take and nobody else, is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise MachineError("a fleet takes Dask, which is not here; run: scripts/setup fleet")


def is_loopback(host: str) -> bool:
    """Whether nobody on another machine can reach it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def make_key(file: Path) -> None:
    """Make a key with its certificate, which signs itself: who has the file belongs to the fleet.

    MachineError where that cannot be done.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".key-") as name:
            made = Path(name) / "pem"
            subprocess.run(
                [
                    "openssl", "req", "-x509", "-nodes", "-newkey", "ec",
                    "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", str(_DAYS),
                    "-subj", "/CN=a fleet of the WAL lab", "-keyout", made, "-out", made,
                ],
                check=True, capture_output=True, text=True, umask=0o077,
            )  # fmt: skip
            os.link(made, file)
    except FileExistsError:
        pass  # another has just made it
    except (OSError, subprocess.CalledProcessError) as error:
        words = str(getattr(error, "stderr", None) or error).strip()[-300:]
        raise MachineError(f"{file}: no key can be made with openssl: {words}") from None
