"""What a server was made of."""

import msgspec


class AppliedPatch(msgspec.Struct, frozen=True):
    """A patch as it was applied."""

    name: str
    sha256: str


class Build(msgspec.Struct, frozen=True):
    """build.json: an installed server and everything it was made from."""

    variant: str
    version: str
    source: str
    """The tarball's SHA-256, the digest of the directory's files, or the commit."""
    source_kind: str
    patches: tuple[AppliedPatch, ...]
    build_system: str
    options: tuple[str, ...]
    compiler: str
    flags: dict[str, str]
    key: str
    """Digest of all the above: same key, same server."""
    seconds: float
    built: str
    """When, UTC."""
    sandbox: str = "none"
    """What it was built in: bwrap, container or none."""
