"""What a variant of somebody's patches is called who did not say it: by the first one's subject."""

import re
from collections.abc import Sequence

from wallab.errors import LabError
from wallab.servers.patchfile import GivenPatch

LONGEST = 40
"""As `wallab.record.ownvariant.NAME` has it."""


def of(patches: Sequence[GivenPatch]) -> str:
    """Return a name such as “avoid-second-write-v3”; LabError where they have no word for one.

    The version is that of the file's name, as git format-patch -v has it.
    """
    first = patches[0]
    version = re.match(r"(v\d{1,4})-", first.name)
    subject = first.subject or re.sub(r"^(v\d+-)?(\d{4}-)?", "", first.name)
    words = re.findall(r"[a-z0-9]+", subject.lower())
    ending = f"-{version[1]}" if version else ""
    while len("-".join(words)) + len(ending) > LONGEST and len(words) > 1:
        words.pop()
    name = "-".join(words)[: LONGEST - len(ending)]
    if not name:
        raise LabError("the patches have no subject that makes a name: say one with --name NAME")
    return name + ending
