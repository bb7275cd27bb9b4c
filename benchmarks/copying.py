"""Copies of the checkout, in which faults can be planted."""

import shutil
import subprocess
from pathlib import Path

from wallab import paths


def checkout(home: Path) -> Path:
    """Copy the checkout, as it is now, into a folder, and return the copy.

    Everybody may read it. What git ignores is not in it: neither servers nor results. It is a
    repository of its own, with one commit.
    """
    home.chmod(0o755)
    lab = home / "lab"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=paths.LAB, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (paths.LAB / name).exists():  # it may be removed, and still known
            (lab / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(paths.LAB / name, lab / name)
    git = ["git", "-c", "user.name=copy", "-c", "user.email=copy@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "Copy"]):
        subprocess.run([*git, *command], cwd=lab, check=True)
    return lab
