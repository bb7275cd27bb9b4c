"""A variant is called by the subject of its first patch, and by a name that it may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallab.errors import LabError
from wallab.record.ownvariant import NAME
from wallab.servers import variantname
from wallab.servers.patchfile import GivenPatch


def patch(name: str, subject: str = "") -> GivenPatch:
    """A patch of that name and subject."""
    return GivenPatch(name, subject, "", b"")


@pytest.mark.parametrize(
    ("name", "subject", "expected"),
    [
        ("v3-0001-foo", "Avoid a second write", "avoid-a-second-write-v3"),
        ("0001-Avoid-a-second-write", "", "avoid-a-second-write"),
        ("v12-0001-Avoid-it", "", "avoid-it-v12"),
        ("wal", "pg_wal: don't sync *twice*!", "pg-wal-don-t-sync-twice"),
        ("v2-x", "Überall schneller", "berall-schneller-v2"),
        # Whole words, as far as there is room, and of a single one its beginning.
        (
            "v3-x",
            "one two three four five six seven eight nine",
            "one-two-three-four-five-six-seven-v3",
        ),
        ("v3-x", "w" * 50, "w" * 37 + "-v3"),
        ("x", "w" * 40, "w" * 40),
    ],
)
def test_names(name: str, subject: str, expected: str) -> None:
    assert variantname.of([patch(name, subject), patch("v9-0002-other", "Other")]) == expected


def test_without_a_word_there_is_no_name() -> None:
    with pytest.raises(LabError, match="say one with --name NAME"):
        variantname.of([patch("v3-0001-", "***")])


@given(st.text(max_size=60), st.text("ab c", min_size=1, max_size=80).filter(str.strip))
def test_every_name_is_one_that_a_variant_may_have(name: str, subject: str) -> None:
    assert NAME.fullmatch(variantname.of([patch(name, subject)]))
