"""Drive profiles: the parameters of the drives that can be simulated."""

import tomllib
from typing import Any

from wallab import paths
from wallab.errors import LabError

PROTECTED = ("raid-bbwc", "raid-bbwc-128mb", "nvme-plp")
"""Profiles of drives whose write cache survives a power failure."""

_PROFILES = paths.DRIVE / "profiles"


def profiles() -> dict[str, str]:
    """Return the profiles' names and what the first lines of each say of its drive."""
    abouts = {}
    for file in sorted(_PROFILES.glob("*.toml")):
        head = file.read_text().split("\n#\n", 1)[0]
        about = " ".join(line.lstrip("# ") for line in head.splitlines())
        abouts[file.stem] = about.removeprefix(f"{file.stem}: ")
    return abouts


def profile(name: str) -> dict[str, str]:
    """Read the drive profile of that name: parameters of the drive as it takes them."""
    file = _PROFILES / f"{name}.toml"
    known = profiles()
    if name not in known:
        raise LabError(f"no drive profile “{name}”; there are {', '.join(known)}")
    try:
        data: dict[str, Any] = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"{file}: {error}") from None
    return {key: _parameter(value) for key, value in data.items()}


def _parameter(value: object) -> str:
    """Write a value of a profile as the drive's command line takes it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
