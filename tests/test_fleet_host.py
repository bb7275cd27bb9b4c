"""A host refuses what it does not have as the run has it, before anything is sent or started."""

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from test_virtual import chosen

from wallab.errors import MachineError
from wallab.machine import checkout
from wallab.record import matrix
from wallab.virtual import host, qemu, template, turns
from wallab.virtual.host import Host
from wallab.virtual.message import Answer, Order
from wallab.virtual.setup import Setup
from wallab.virtual.template import Recipe


class Emulator(NamedTuple):
    """QEMU as this host has it."""

    sha256: str = "emulator"
    firmware: str = "firmware"


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Setup:
    """What this host has, but for what is sent."""
    monkeypatch.setenv("WALLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WALLAB_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setattr(qemu, "find", lambda packages: Emulator())
    monkeypatch.setattr(turns, "digest", lambda: "turns")
    experiment, preset = chosen()
    conditions = matrix.conditions(experiment, preset, matrix.cells(experiment, preset)[0])
    order = template.order_of(experiment, preset, conditions, "stock")
    recipe = Recipe(
        order=order, options=(), emulator="emulator", firmware="firmware", turns="turns",
        kernel="k", first="f", root="r", server="s",
    )  # fmt: skip
    return Setup(
        lab=checkout.files(), packages={}, recipe=recipe, memory="m", server="t", memory_mb=1,
        mips=1000,
    )  # fmt: skip


def refused(setup: Setup, order: Order) -> str:
    """Return why a new host does not take the sample."""
    taker = Host()
    asked: list[str] = []
    try:
        with pytest.raises(MachineError) as error:
            taker.answer(setup, order, lambda digest, file: asked.append(digest))
    finally:
        taker.close()
    assert asked == []
    return str(error.value)


def send(digest: str, file: Path) -> None:
    """Send the same, whatever was asked for."""
    file.write_text("x")


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("emulator", "the emulator"),
        ("firmware", "the firmware"),
        ("turns", "the emulator's turns"),
    ],
)
def test_what_a_host_has_of_its_own_must_be_the_runs(setup: Setup, field: str, name: str) -> None:
    recipe = msgspec.structs.replace(setup.recipe, **{field: "other"})
    words = refused(msgspec.structs.replace(setup, recipe=recipe), recipe.order)
    assert words == f"not the same here as in the run: {name}: sha256 other in the run, sha256 " + (
        f"{field} here"
    )


def test_another_lab_is_named_with_what_helps(setup: Setup) -> None:
    words = refused(msgspec.structs.replace(setup, lab="other"), setup.recipe.order)
    assert words.startswith("not the same here as in the run: the lab (check out the same commit)")


def test_what_was_sent_is_what_was_asked_for(setup: Setup, tmp_path: Path) -> None:
    """A damaged parcel is not kept, so that it is asked for again."""
    with pytest.raises(OSError, match="what was sent as 00 is something else"):
        host.parcel("00", send)
    assert list((tmp_path / "cache" / "virtual" / "parcels").iterdir()) == []
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    kept = host.parcel(digest, send)
    assert kept.read_text() == "x"
    assert host.parcel(digest, lambda digest, file: pytest.fail("it is there")) == kept


def test_a_template_that_became_another_is_refused(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = template.Template(tmp_path, Answer(), "other memory")
    monkeypatch.setattr(template, "kept", lambda recipe: kept)
    monkeypatch.setattr(host, "parcel", lambda digest, fetch: tmp_path / digest)
    assert "became another here than where the run was begun" in refused(setup, setup.recipe.order)
