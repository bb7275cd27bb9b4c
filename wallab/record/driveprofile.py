"""Drive profiles: the parameters of the drives that can be simulated."""

from wallab import paths
from wallab.errors import LabError
from wallab.files.strict import read_text, read_toml

PROTECTED = ("raid-bbwc", "raid-bbwc-128mb", "nvme-plp")
"""Profiles of drives whose write cache survives a power failure."""

ELEVATORS = ("clook", "fifo", "anticipatory")
"""The orders in which the host gives requests to a drive: its parameter scheduler."""

_PROFILES = paths.DRIVE / "profiles"
_Parameters = dict[str, int | str | list[int]]


def profiles() -> dict[str, str]:
    """Return the profiles' names and what the first lines of each say of its drive."""
    abouts = {}
    for file in sorted(_PROFILES.glob("*.toml")):
        head = read_text(file).split("\n#\n", 1)[0]
        about = " ".join(line.lstrip("# ") for line in head.splitlines())
        abouts[file.stem] = about.removeprefix(f"{file.stem}: ")
    return abouts


def profile(name: str, elevator: str | None = None) -> dict[str, str]:
    """Read the drive profile of that name: parameters of the drive as it takes them.

    Behind another elevator, if one is named.
    """
    file = _PROFILES / f"{name}.toml"
    known = profiles()
    if name not in known:
        raise LabError(f"no drive profile “{name}”; there are {', '.join(known)}")
    parameters = {key: _parameter(value) for key, value in read_toml(file, _Parameters).items()}
    return parameters | {"scheduler": elevator} if elevator else parameters


def _parameter(value: int | str | list[int]) -> str:
    """Write a value of a profile as the drive's command line takes it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
