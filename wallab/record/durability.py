"""What power cuts have shown of a cell of a table: survived so many, or lost."""

import msgspec


class Durability(msgspec.Struct, frozen=True):
    """The mark of a cell."""

    cuts: int
    lost: int
    """Of the cuts, in which something was lost or broken."""
    account: str = ""
    """The shortest account of a loss."""

    @property
    def bound(self) -> float | None:
        """What n cuts without a loss allow: at 95% the probability of one is below 3/n."""
        return None if self.lost else min(1.0, 3 / self.cuts)

    @property
    def mark(self) -> str:
        """The mark in a few characters."""
        if self.bound is None:
            return f"LOST {self.lost}/{self.cuts}"
        return f"safe {self.cuts} (<{self.bound:.1%})"

    @property
    def words(self) -> str:
        """The mark in words."""
        if self.bound is None:
            return f"power cuts: {self.lost} of {self.cuts} broke the promise ({self.account})"
        return f"power cuts: {self.cuts} without a loss (below {self.bound:.1%} at 95%)"
