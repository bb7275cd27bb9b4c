"""Setting a machine up: how it ends."""

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
