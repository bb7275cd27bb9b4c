"""Patch files as reviewers get them: mails of git format-patch, mailboxes, and plain diffs."""

import email
import email.message
import email.policy
import gzip
import io
import itertools
import re
import zlib
from pathlib import Path

import msgspec

from wallab.errors import LabError
from wallab.servers import diff
from wallab.servers.diff import FileDiff

_FROM_LINE = re.compile(rb"^From \S+.*\d\d:\d\d.*\d{4}[ \t]*\r?$", re.MULTILINE)
_MAIL_HEADER = re.compile(
    rb"\s*(?:From|Date|Subject|Message-I[dD]|Received|Return-Path|MIME-Version|Delivered-To): "
)
_LARGEST = 64 << 20
"""Bytes of a compressed patch."""


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
        str(file).encode()
        text = _unpacked(file.read_bytes(), str(file))
    except UnicodeEncodeError:
        raise LabError(f"patch {str(file)!a}: the file's name is not in UTF-8; rename it") from None
    except OSError as error:
        raise LabError(f"patch {file}: {error.strerror}") from None
    if not text.strip():
        raise LabError(f"patch {file}: is empty")
    stem = _plain_name(re.sub(r"(\.(patch|diff|txt|mbox|eml|gz))+$", "", file.name))
    try:
        if mails := _mails(text):
            return _of_mails(mails, stem, file)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        # What Python's parser of mails knows no better word for.
        raise LabError(
            f"patch {file}: a header of its mail is damaged ({error}); save the diff alone"
        ) from None
    return _split(diff.read(_unix(text), str(file)), stem, "", "", file)


def _unpacked(content: bytes, where: str) -> bytes:
    """Return the content, decompressed if it is gzip's; LabError if it is damaged, or huge."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            text = stream.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise LabError(f"patch {where}: damaged, or not gzip: {error}") from None
    if len(text) > _LARGEST:
        raise LabError(f"patch {where}: is larger than {_LARGEST >> 20} MiB when decompressed")
    return text


def _plain_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60] or "patch"


def _unix(text: bytes) -> bytes:
    """Return the text with Unix line ends if all its lines have DOS's, as git am does."""
    return text.replace(b"\r\n", b"\n") if text.count(b"\r\n") == text.count(b"\n") else text


def _mails(text: bytes) -> list[email.message.EmailMessage]:
    """Return the mails of a mailbox or the single mail; none if the text is something else."""
    starts = [line.start() for line in _FROM_LINE.finditer(text)]
    if not starts or text[: starts[0]].strip():
        if not _MAIL_HEADER.match(text):
            return []
        parts = [text.lstrip()]
    else:
        parts = [text[a:b] for a, b in itertools.pairwise([*starts, len(text)])]
    return [email.message_from_bytes(part, policy=email.policy.default) for part in parts]


def _of_mails(mails: list[email.message.EmailMessage], stem: str, file: Path) -> list[GivenPatch]:
    """Return the patches in the mails: in their text, or attached to one of them."""
    patches: list[GivenPatch] = []
    carriers = 0
    for mail in mails:
        subject = re.sub(r"^(\[[^]]*\]|Re:|\s)+", "", _header(mail, "subject"))
        author = _header(mail, "from")
        attached = False
        for part in mail.walk():
            if part.is_multipart():
                continue
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            attachment = part.get_filename()
            where = f"{file}, {attachment}" if attachment else str(file)
            files = diff.read(_unix(_unpacked(content, where)), where)
            if not files:
                continue  # a cover letter, or the text before attachments
            attached = attached or attachment is not None
            name = attachment or (subject if len(mails) > 1 else stem)
            name = _plain_name(re.sub(r"(\.(patch|diff|txt|gz))+$", "", name))
            patches += _split(files, name, subject, author, file)
        carriers += attached
    if carriers > 1:
        raise LabError(
            f"patch {file}: {carriers} of its mails have patches attached, maybe the same in "
            "several versions; save those of one version, and name them"
        )
    if not patches:
        diff.touched([], str(file))  # says that there is none
    return patches


def _header(mail: email.message.EmailMessage, name: str) -> str:
    """Return the header, in UTF-8 whatever it was sent in."""
    return str(mail[name] or "").encode(errors="replace").decode()


def _split(
    files: list[FileDiff], name: str, subject: str, author: str, file: Path
) -> list[GivenPatch]:
    """Return the diff as one patch, or as several where a file of the tree comes up again."""
    groups: list[list[FileDiff]] = [[]]
    touched: set[str] = set()
    for part, names in zip(files, diff.touched(files, str(file)), strict=True):
        if not touched.isdisjoint(names):
            groups.append([])
            touched = set()
        groups[-1].append(part)
        touched.update(names)
    return [
        GivenPatch(
            name if number == 1 else f"{name}-{number}", subject, author, diff.with_prefix(group)
        )
        for number, group in enumerate(groups, 1)
    ]
