"""Patch files as reviewers get them: mails of git format-patch, mailboxes, and plain diffs."""

import email
import email.message
import email.policy
import gzip
import re
from pathlib import Path

import msgspec

from wallab.errors import LabError
from wallab.servers import diff
from wallab.servers.diff import FileDiff

_FROM_LINE = re.compile(rb"^From \S+.*\d\d:\d\d.*\d{4}[ \t]*\r?$", re.MULTILINE)
_MAIL_HEADER = re.compile(
    rb"\s*(?:From|Date|Subject|Message-I[dD]|Received|Return-Path|MIME-Version|Delivered-To): "
)


class GivenPatch(msgspec.Struct, frozen=True):
    """One patch out of a file."""

    name: str
    """The file's name without its ending, or of the subject's words where a file holds several."""
    subject: str
    """As the mail says it; empty for a plain diff."""
    author: str
    text: bytes
    """The diff alone, decoded, for patch -p1."""


def read(file: Path) -> list[GivenPatch]:
    """Return the patches of the file, in order.

    Taken are mails and mailboxes as git format-patch writes them (quoted-printable and base64
    too), a mail with patches attached, unified diffs with and without a prefix (-p1, -p0), and
    any of these compressed by gzip. LabError, which names the file, for everything else.
    """
    try:
        text = file.read_bytes()
        if text.startswith(b"\x1f\x8b"):
            text = gzip.decompress(text)
    except (OSError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise LabError(f"patch {file}: {reason}") from None
    if not text.strip():
        raise LabError(f"patch {file}: is empty")
    stem = _plain_name(re.sub(r"(\.(patch|diff|txt|mbox|eml|gz))+$", "", file.name))
    mails = _mails(text)
    if mails:
        return _of_mails(mails, stem, file)
    return _split(diff.read(_unix(text), str(file)), stem, "", "", file)


def _plain_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60] or "patch"


def _unix(text: bytes) -> bytes:
    """Return the text with Unix line ends if all its lines have DOS's, as git am does."""
    return text.replace(b"\r\n", b"\n") if text.count(b"\r\n") == text.count(b"\n") else text


def _mails(text: bytes) -> list[email.message.EmailMessage]:
    """Return the mails of a mailbox or the single mail; none if the text is something else."""
    starts = [found.start() for found in _FROM_LINE.finditer(text)]
    if not starts or text[: starts[0]].strip():
        if not _MAIL_HEADER.match(text):
            return []
        parts = [text.lstrip()]
    else:
        ends = [*starts[1:], len(text)]
        # The line “From …” itself is no part of the mail.
        parts = [text[a:b].split(b"\n", 1)[-1] for a, b in zip(starts, ends, strict=True)]
    return [email.message_from_bytes(part, policy=email.policy.default) for part in parts]


def _of_mails(mails: list[email.message.EmailMessage], stem: str, file: Path) -> list[GivenPatch]:
    """Return the patches in the mails: in their text, or attached to one of them."""
    found: list[GivenPatch] = []
    carriers = 0
    for mail in mails:
        subject = re.sub(r"^(\[[^]]*\]|Re:|\s)+", "", str(mail["subject"] or ""))
        author = str(mail["from"] or "")
        attached = False
        for part in mail.walk():
            if part.is_multipart():
                continue
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            if content.startswith(b"\x1f\x8b"):
                content = gzip.decompress(content)
            files = diff.read(_unix(content), str(file))
            if not files:
                continue  # a cover letter, or the text before attachments
            attached = attached or part.get_filename() is not None
            name = part.get_filename() or (subject if len(mails) > 1 else stem)
            name = _plain_name(re.sub(r"(\.(patch|diff|txt|gz))+$", "", name))
            found += _split(files, name, subject, author, file)
        carriers += attached
    if carriers > 1:
        raise LabError(
            f"patch {file}: {carriers} of its mails have patches attached, maybe the same in "
            "several versions; save those of one version, and name them"
        )
    if not found:
        diff.touched([], str(file))  # says that there is none
    return found


def _split(
    files: list[FileDiff], name: str, subject: str, author: str, file: Path
) -> list[GivenPatch]:
    """Return the diff as one patch, or as several where a file of the tree comes up again."""
    diff.touched(files, str(file))
    groups: list[list[FileDiff]] = [[]]
    for one in files:
        if any(set(one.names) & set(other.names) for other in groups[-1]):
            groups.append([])
        groups[-1].append(one)
    return [
        GivenPatch(
            name if number == 1 else f"{name}-{number}", subject, author, diff.with_prefix(group)
        )
        for number, group in enumerate(groups, 1)
    ]
