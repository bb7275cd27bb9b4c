"""What a sample follows from beside its order: names by which any host can have the same guest."""

import msgspec

from wallab.virtual.template import Recipe


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A template and a server, by digests."""

    lab: str
    """Digest of the lab's code (wallab.machine.checkout)."""
    packages: dict[str, str]
    """Debian package -> version, for the emulator; empty where it is not Debian's."""
    recipe: Recipe
    """Of the template; it names emulator, firmware, kernel and file systems."""
    memory: str
    """Digest of what the template's memory became."""
    server: str
    """sha256 of the device that the server to be measured comes on."""
    memory_mb: int
    mips: int

    @property
    def parcels(self) -> dict[str, str]:
        """What any host can be sent -> its sha256."""
        return {
            "kernel": self.recipe.kernel,
            "first": self.recipe.first,
            "root": self.recipe.root,
            "maker": self.recipe.server,
            "server": self.server,
        }
