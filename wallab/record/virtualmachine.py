"""The virtual machine that a run was measured on: everything by version and digest."""

import msgspec


class VirtualMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What a virtual sample is a function of, beside the experiment, the cell and the seed."""

    mips: int
    """Million instructions that the processor does in a second of its own clock."""
    memory_mb: tuple[int, ...]
    """Of the guests, each size once."""
    emulator: str
    """As it names itself."""
    emulator_sha256: str
    """Of its program, and of what that loads to run instructions."""
    turns: str
    """Digest of the sources of the library that it preloads."""
    firmware_sha256: str
    """Of what it gives to a guest's processor to begin with."""
    options: tuple[str, ...]
    """Of the emulator, with the names of files without their folders."""
    kernel: str
    kernel_sha256: str
    first_sha256: str
    """The first file system, which the kernel starts with."""
    root_sha256: str
    """The root file system: the lab, its drive, its tools."""
    servers: dict[str, str]
    """As the manifest's builds -> sha256 of the device that a server comes on."""
    templates: dict[str, str]
    """Template -> sha256 of its recipe, which names all that its memory follows from."""
    packages: dict[str, str] = {}
    """Debian package -> version, of emulator, firmware and kernel; where they are Debian's."""

    @property
    def words(self) -> str:
        """The machine for people."""
        return (
            f"virtual, {self.mips} million instructions a second, {_each(self.memory_mb)} MB, one "
            f"processor; {self.emulator}; Linux {self.kernel}"
        )


def _each(sizes: tuple[int, ...]) -> str:
    return " or ".join(map(str, sizes))
