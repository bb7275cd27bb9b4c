"""Where a fleet's scheduler is, and who may speak with it."""

import importlib.util
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wallab import paths
from wallab.errors import LabError, MachineError
from wallab.fleet.contact import check_dask, contact, default_key, make_key


@pytest.fixture(autouse=True)
def own_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where this user's key is looked for; there is none."""
    monkeypatch.setenv("WALLAB_FLEET_KEY", str(tmp_path / "own" / "fleet.pem"))
    return default_key()


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("tcp://127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("localhost", "tcp://localhost:8786"),
        ("[::1]:99", "tcp://[::1]:99"),
    ],
)
def test_this_machine_takes_no_key(address: str, read: str) -> None:
    assert contact(address, None, insecure=False).address == read


@pytest.mark.parametrize("address", ["host", "tcp://10.0.0.1:8786", ":8786", "tls://127.0.0.1"])
def test_all_others_take_one(address: str, own_key: Path) -> None:
    with pytest.raises(LabError, match=r"there is no .*fleet\.pem: copy it from") as refused:
        contact(address, None, insecure=False)
    assert refused.value.exit_code == 2
    made = contact(address, None, insecure=False, make=True)
    assert made.key == own_key
    assert made.address.startswith("tls://")
    assert stat.S_IMODE(own_key.stat().st_mode) == 0o600
    before = own_key.read_bytes()
    assert contact(address, None, insecure=False, make=True) == made
    assert own_key.read_bytes() == before


def test_insecure_has_to_be_said() -> None:
    assert contact("tcp://10.0.0.1", None, insecure=True).address == "tcp://10.0.0.1:8786"
    with pytest.raises(LabError, match="--insecure: goes without"):
        contact("tls://10.0.0.1", None, insecure=True)


@pytest.mark.parametrize(
    "address", ["udp://host", "host:0", "host:65536", "host:x", "a b", "tcp://host:1/x"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(LabError, match="expected an address such as tcp://HOST:8786"):
        contact(address, None, insecure=True)


def test_a_key_that_others_can_read_is_refused(own_key: Path) -> None:
    make_key(own_key)
    own_key.chmod(0o640)
    with pytest.raises(LabError, match=r"others can read this key .*chmod 600"):
        contact("host", None, insecure=False)


def test_where_no_key_can_be_made(monkeypatch: pytest.MonkeyPatch, own_key: Path) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MachineError, match="no key can be made with openssl"):
        make_key(own_key)
    assert list(own_key.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler: real time is measured here"),
        (["--insecure"], "are for a --scheduler"),
        (["--machine", "virtual", "--scheduler", "host"], "copy it from the host of the scheduler"),
        (["--machine", "virtual", "--scheduler", "127.0.0.1", "--jobs", "2"], "--jobs: each host"),
    ],
)
def test_what_run_matrix_refuses(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wallab.command.run_matrix", *arguments],
        cwd=paths.LAB, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert words in done.stderr


def test_without_dask_it_is_told_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match="run: scripts/setup fleet"):
        check_dask()


def test_who_measures_alone_needs_no_dask() -> None:
    modules = "run_matrix, tabulate, worker, scheduler, reproduce"
    look = f"import sys; from wallab.command import {modules}; print('distributed' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=paths.LAB, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
