"""git as the lab runs it: no configuration, no repository and no tree makes it start anything."""

_ALONE = (
    "env",
    "GIT_DIR=/dev/null",
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_ATTR_NOSYSTEM=1",
    "LC_ALL=C",
)
"""For a tree that is in no repository, wherever it lies and whatever was put into it."""


def apply(*options: str) -> list[str]:
    """Return the command that takes a diff (-p1) on standard input, in the folder of its tree."""
    return [*_ALONE, "git", "apply", "-p1", "--whitespace=nowarn", *options, "-"]
