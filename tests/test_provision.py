"""Setting a machine up: how it ends."""

import os
import shutil
import sys

import pytest

from wallab.machine import provision


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "setup: interrupted; "),
        (provision.SetupError("as root, run: apt-get install x"), 3, "setup: as root, run: "),
        (PermissionError(13, "Permission denied"), 3, "setup: [Errno 13] Permission denied"),
    ],
)
def test_setup_ends_in_words(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def fail(groups: list[str]) -> None:
        raise error

    monkeypatch.setattr(provision, "install_packages", fail)
    monkeypatch.setattr(sys, "argv", ["scripts/setup", "--quiet"])
    assert provision.main() == code
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(("user", "asked"), [(0, {"x", "y", "z"}), (12345, {"x"})])
def test_who_is_not_root_has_to_install_less(
    monkeypatch: pytest.MonkeyPatch, user: int, asked: set[str]
) -> None:
    """What is unpacked into the cache, and file systems that only root can mount."""
    groups = {"base": {"x": "x"}, "filesystems": {"y": "y"}, "virtual": {"z": "z"}}
    monkeypatch.setattr(provision, "PACKAGES", groups)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    got: list[set[str]] = []
    monkeypatch.setattr(provision, "install", lambda wanted: got.append(set(wanted)))
    provision.install_packages(list(groups))
    assert got == [asked]


def test_without_apt_everything_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        provision.SetupError, match=r"mkfs\.btrfs, mkfs\.ext4, mkfs\.xfs, python3, qemu"
    ):
        provision.install_packages(["base", "filesystems", "virtual"])
