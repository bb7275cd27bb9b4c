"""What a host says about a sample that it was to take."""

from typing import Literal

import msgspec

from wallab.virtual.message import Answer


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """How it went, told by the host itself."""

    host: str
    state: Literal["answered", "failed", "died", "unfit"]
    """failed: in the guest, and would anywhere; died: its emulator; unfit: this host leaves."""
    seconds: float = 0.0
    answer: Answer | None = None
    reason: str = ""
