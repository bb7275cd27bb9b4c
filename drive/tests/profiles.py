#!/usr/bin/env python3
"""Every profile is one that the server accepts, and does what its drive's data sheet says.

usage: profiles.py WAL-DRIVE FIGURES DIRECTORY
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

# Published figures (each profile names its source) of requests of 4 kB and of sequences, and
# by how much the model may miss them.
PUBLISHED = {
    "ata-2005": {"sequential_bytes": (58e6, 0.03)},
    "sata-7200": {"sequential_bytes": (210e6, 0.03)},
    "sata-ssd": {
        "read_1": (10000, 0.03),
        "read_32": (98000, 0.15),
        "write_1": (40000, 0.05),
        "sequential_bytes": (540e6, 0.05),
    },
    "nvme-volatile": {
        "read_1": (22000, 0.05),
        "write_1": (80000, 0.05),
        "sequential_bytes": (7450e6, 0.2),
    },
    "nvme-plp": {
        "read_1": (1e6 / 92, 0.03),
        "write_1": (1e6 / 21, 0.03),
        "sequential_bytes": (3500e6, 0.2),
    },
}


def text(value: str | int | list[int]) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def start(server: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """Exit 3 means that the parameters were accepted: the mount point does not exist."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [server, "--mount", f"{scratch}/none", "--control", f"{scratch}/socket"]
        command += ["--size", "1048576"]
        for setting in settings:
            command += ["--set", setting]
        return subprocess.run(command, capture_output=True, text=True)


def check(path: Path, server: str, figures: str) -> None:
    profile = tomllib.loads(path.read_text())
    assert profile["name"] == path.stem, f"{path}: name is {profile['name']}"
    settings = [f"{key}={text(value)}" for key, value in profile.items()]
    result = start(server, *settings)
    assert result.returncode == 3, f"{path}: {result.stderr}"
    done = subprocess.run([figures, *settings], capture_output=True, text=True, check=True)
    modelled = json.loads(done.stdout)
    print(path.stem, modelled)
    for key, (published, share) in PUBLISHED.get(path.stem, {}).items():
        error = abs(modelled[key] - published)
        assert error <= share * published, (path.stem, key, modelled[key])
    # A queue lets the drive choose, or work on several requests at once.
    gains = modelled["read_32"] > 1.5 * modelled["read_1"]
    assert gains == (profile.get("queue_depth", 1) > 1), path


def main() -> None:
    server, figures, directory = sys.argv[1:]
    profiles = sorted(Path(directory).glob("*.toml"))
    assert profiles, f"no profiles in {directory}"
    for path in profiles:
        check(path, server, figures)
    for wrong in ("rpm=1", "speed=7200", "rpm", "scheduler=best"):
        result = start(server, wrong)
        assert result.returncode == 2, (wrong, result)
        assert "wal-drive: --set: " in result.stderr, (wrong, result)


if __name__ == "__main__":
    main()
