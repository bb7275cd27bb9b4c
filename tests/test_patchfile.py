"""Patch files in the forms that reviewers get them in."""

import base64
import contextlib
import gzip
import os
import quopri
import tempfile
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from wallab.errors import LabError, MachineError
from wallab.files import jsonfile
from wallab.servers import diff, patchfile

DIFF = """\
--- a/src/x.c
+++ b/src/x.c
@@ -1,2 +1,3 @@
 one
-two
+zwei ö
+drei = 3
"""
OTHER = DIFF.replace("x.c", "y.c")


def mail(subject: str, body: str, *headers: str) -> str:
    """A mail as git format-patch writes it."""
    return "\n".join(
        [
            "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001",
            "From: =?UTF-8?q?J=C3=B6rg?= <joerg@example.org>",
            "Date: Sat, 21 Nov 2026 12:00:00 +0100",
            f"Subject: {subject}",
            *headers,
            "",
            body,
            "-- ",
            "2.39.5",
            "",
            "",
        ]
    )


def given(tmp_path: Path, content: str | bytes, name: str = "v3-0001-foo.patch") -> Path:
    """A file with the content."""
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_plain_diff(tmp_path: Path) -> None:
    (patch,) = patchfile.read(given(tmp_path, f"Dear all,\n\n{DIFF}\nRegards\n"))
    assert (patch.name, patch.subject, patch.author) == ("v3-0001-foo", "", "")
    assert patch.text.decode() == DIFF


def test_diff_without_prefix(tmp_path: Path) -> None:
    bare = DIFF.replace("a/src", "src").replace("b/src", "src")
    (patch,) = patchfile.read(given(tmp_path, bare))
    assert patch.text.decode() == DIFF
    git = f"diff --git src/x.c src/x.c\nindex 1..2 100644\n{bare}"
    (patch,) = patchfile.read(given(tmp_path, git))
    assert patch.text.decode() == f"diff --git a/src/x.c b/src/x.c\nindex 1..2 100644\n{DIFF}"


def test_diff_between_two_folders(tmp_path: Path) -> None:
    text = DIFF.replace("a/src", "postgresql-18.6.orig/src").replace("b/src", "postgresql-18.6/src")
    (patch,) = patchfile.read(given(tmp_path, text))
    assert diff.touched(diff.read(patch.text, ""), "") == [["src/x.c"]]


def test_each_file_has_its_own_names() -> None:
    """git names the files of a reversed diff backwards."""
    renamed = (
        "diff --git a/src/o b/src/n\nsimilarity index 100%\nrename from src/o\nrename to src/n\n"
    )
    last = f"diff --git a/src/y.c b/src/y.c\n{OTHER}"
    files = diff.read(f"{DIFF}{renamed}{last}".encode(), "")
    assert [sorted(names) for names in diff.touched(files, "")] == [
        ["src/x.c"],
        ["src/n", "src/o"],
        ["src/y.c"],
    ]


def test_compressed_and_with_dos_line_ends(tmp_path: Path) -> None:
    packed = gzip.compress(DIFF.replace("\n", "\r\n").encode())
    (patch,) = patchfile.read(given(tmp_path, packed, "foo.patch.gz"))
    assert (patch.name, patch.text.decode()) == ("foo", DIFF)


@pytest.mark.parametrize("encoding", ["8bit", "quoted-printable", "base64"])
def test_mail(tmp_path: Path, encoding: str) -> None:
    body = f"Some reasons.\n---\n src/x.c | 3 ++-\n\n{DIFF}"
    coded = {
        "8bit": body,
        "quoted-printable": quopri.encodestring(body.encode()).decode(),
        "base64": base64.encodebytes(body.encode()).decode(),
    }[encoding]
    headers = [
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=UTF-8",
        f"Content-Transfer-Encoding: {encoding}",
    ]
    if encoding == "base64":
        coded += "\n"
    (patch,) = patchfile.read(
        given(tmp_path, mail("[PATCH v3 1/1] Do foo", coded, *headers), "mail.txt")
    )
    assert (patch.subject, patch.author) == ("Do foo", "Jörg <joerg@example.org>")
    assert (patch.name, patch.text.decode()) == ("mail", DIFF)


def test_mail_without_its_first_line(tmp_path: Path) -> None:
    """As a program for mails saves it, some with empty lines before."""
    alone = mail("Re: [PATCH] Do foo", DIFF).split("\n", 1)[1]
    for before in ("", "\n\n"):
        (patch,) = patchfile.read(given(tmp_path, before + alone))
        assert (patch.subject, patch.author) == ("Do foo", "Jörg <joerg@example.org>")
        assert patch.text.decode() == DIFF


def test_mail_that_names_nobody(tmp_path: Path) -> None:
    (patch,) = patchfile.read(given(tmp_path, f"Subject: Do foo\n\n{DIFF}"))
    assert (patch.subject, patch.author) == ("Do foo", "")


def test_header_that_no_text_can_hold(tmp_path: Path) -> None:
    """Half of a pair of UTF-16, which UTF-7 lets through; Python's parser has no word for it."""
    file = given(tmp_path, f"Subject: Do =?utf-7?q?+2AA-?=\n\n{DIFF}")
    with pytest.raises(LabError, match="a header of its mail is damaged"):
        patchfile.read(file)


def test_mailbox_of_two(tmp_path: Path) -> None:
    box = mail("[PATCH 1/2] Do foo", DIFF) + mail("[PATCH 2/2] Do bar", OTHER)
    patches = patchfile.read(given(tmp_path, box, "all.mbox"))
    assert [(p.name, p.author) for p in patches] == [
        ("Do-foo", "Jörg <joerg@example.org>"),
        ("Do-bar", "Jörg <joerg@example.org>"),
    ]


def test_what_is_wrong_with_a_mail_names_the_file(tmp_path: Path) -> None:
    broken = DIFF.replace("+drei = 3\n", "")
    file = given(tmp_path, mail("foo", broken).replace("-- \n2.39.5\n", ""))
    with pytest.raises(LabError) as refusal:
        patchfile.read(file)
    assert str(refusal.value).startswith(f"patch {file}: ")
    file = given(tmp_path, mail("foo", DIFF.replace("/src/x.c", "/../x.c")))
    with pytest.raises(LabError) as refusal:
        patchfile.read(file)
    assert str(refusal.value).startswith(f"patch {file}: ")
    file = given(tmp_path, attached(("v1.patch", broken)))
    with pytest.raises(LabError) as refusal:
        patchfile.read(file)
    assert str(refusal.value).startswith(f"patch {file}, v1.patch: ")
    file = given(tmp_path, b"From: =?utf-8?b?\xff?=\n\n" + DIFF.encode())
    with pytest.raises(LabError) as refusal:
        patchfile.read(file)
    assert str(refusal.value).startswith(f"patch {file}: a header of its mail is damaged (")
    assert str(refusal.value).endswith("save the diff alone")


@pytest.mark.parametrize(("file", "name"), [
    ("X-foo.patch", "X-foo"), ("-.foo-.diff", "foo"), ("ö.patch", "patch"), ("a" * 61, "a" * 60),
])  # fmt: skip
def test_names(tmp_path: Path, file: str, name: str) -> None:
    (patch,) = patchfile.read(given(tmp_path, DIFF, file))
    assert patch.name == name


def test_dos_line_ends_of_some_lines_are_content(tmp_path: Path) -> None:
    text = DIFF.replace(" one\n", " one\r\n")
    (patch,) = patchfile.read(given(tmp_path, text))
    assert patch.text.decode() == text


def test_no_more_is_decompressed_than_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int | None] = []

    class Stream(gzip.GzipFile):
        def read(self, size: int | None = -1) -> bytes:
            sizes.append(size)
            return super().read(size)

    monkeypatch.setattr(patchfile.gzip, "GzipFile", Stream)  # type: ignore[attr-defined]
    monkeypatch.setattr(patchfile, "_LARGEST", len(DIFF.encode()))
    packed = gzip.compress(DIFF.encode())
    (patch,) = patchfile.read(given(tmp_path, packed))
    assert patch.text.decode() == DIFF
    assert sizes[0] == len(DIFF.encode()) + 1
    with pytest.raises(LabError, match="is larger than"):
        patchfile.read(given(tmp_path, gzip.compress(f"{DIFF}\n".encode())))


def test_mailbox_with_a_cover_letter(tmp_path: Path) -> None:
    box = (
        mail("[PATCH 0/2] Foo", "It is about x.c | 3 and more.\n")
        + mail("[PATCH 1/2] Do foo", DIFF)
        + mail("[PATCH 2/2] Do bar/baz!", OTHER)
    )
    patches = patchfile.read(given(tmp_path, box, "all.mbox"))
    assert [(p.name, p.subject) for p in patches] == [
        ("Do-foo", "Do foo"),
        ("Do-bar-baz", "Do bar/baz!"),
    ]
    assert [p.text.decode() for p in patches] == [DIFF, OTHER]


def attached(*files: tuple[str, str]) -> str:
    """A mail with files attached."""
    parts = "".join(
        f"--X\nContent-Type: text/x-patch\nContent-Transfer-Encoding: base64\n"
        f'Content-Disposition: attachment; filename="{name}"\n\n'
        f"{base64.encodebytes(text.encode()).decode()}\n"
        for name, text in files
    )
    body = f"--X\nContent-Type: text/plain\n\nHere they are.\n\n{parts}--X--\n"
    return mail("foo", body, "MIME-Version: 1.0", "Content-Type: multipart/mixed; boundary=X")


def test_mail_with_patches_attached(tmp_path: Path) -> None:
    text = attached(("v1-0001-a.patch", DIFF), ("v1-0002-b.patch", OTHER))
    patches = patchfile.read(given(tmp_path, text))
    assert [p.name for p in patches] == ["v1-0001-a", "v1-0002-b"]
    assert [p.text.decode() for p in patches] == [DIFF, OTHER]


def test_thread_with_several_versions_is_refused(tmp_path: Path) -> None:
    text = attached(("v1.patch", DIFF)) + attached(("v2.patch", DIFF))
    with pytest.raises(LabError, match="several versions"):
        patchfile.read(given(tmp_path, text))


def test_file_that_comes_up_again_begins_another_patch(tmp_path: Path) -> None:
    patches = patchfile.read(given(tmp_path, DIFF + OTHER + DIFF, "all.diff"))
    assert [(p.name, p.text.decode()) for p in patches] == [("all", DIFF + OTHER), ("all-2", DIFF)]


def test_file_that_comes_up_again_among_others(tmp_path: Path) -> None:
    """Each file is told by its own name, whatever comes before or after it."""
    patches = patchfile.read(given(tmp_path, DIFF + OTHER + OTHER, "all.diff"))
    assert [p.text.decode() for p in patches] == [DIFF + OTHER, OTHER]


def test_what_looks_like_a_header_inside_a_hunk_is_none() -> None:
    text = "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,2 @@\n--- /../old\n+++ /../new\n context\n"
    (file,) = diff.read(text.encode(), "")
    assert (file.headers, file.hunks) == (["a/x.sql", "b/x.sql"], [1])


BINARY = "diff --git a/x.png b/x.png\nindex 1..2\nGIT binary patch\nliteral 4\nLc\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("Dear all,\n", "holds no unified diff"),
        (mail("Re: foo", "I like it."), "holds no unified diff"),
        (BINARY, "x.png: is binary"),
        ("Binary files a/x and b/x differ\n", "is binary"),
        (DIFF.replace("+drei = 3\n", ""), "src/x.c: hunk 1 is cut off or damaged"),
        (DIFF[: DIFF.index("@@")], "src/x.c: has no hunk"),
        ("*** a/src/x.c\n--- b/src/x.c\n***************\n", "context diff"),
        (DIFF.replace("/src/x.c", "/../../etc/passwd"), "leads out of the tree"),
        (DIFF.replace("/src/x.c", "//etc/passwd"), "leads out of the tree"),
        (DIFF.replace("/src/x.c", "/.git/hooks/x"), "leads out of the tree"),
        (
            "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to ../y\n",
            "leads out of the tree",
        ),
        ("diff --git a/x b/x\nnew file mode 120000\n" + DIFF, "symbolic link"),
        ("diff --git a/src/x.c b/src/x.c\nindex 0..1 120000\n" + DIFF, "symbolic link"),
        ("diff --git a/src/x.c b/src/x.c\nindex 0..1 0120777\n" + DIFF, "symbolic link"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 120000\n", "symbolic link"),
        ("diff --git a/x b/x\nnew file mode 160000\n" + DIFF, "symbolic link or a submodule"),
        (
            DIFF.replace("a/src/x.c", '"a/src/\\056./y"').replace("b/src/x.c", '"b/src/\\056./y"'),
            "leads out of the tree",
        ),
        (DIFF.replace("src/x.c", "src/../../x.c"), "leads out of the tree"),
        (DIFF.replace("src/x.c", "src/.GIT/config"), "leads out of the tree"),
        ("diff --git a/x b/y\ncopy from x\ncopy to /etc/y\n", "leads out of the tree"),
        (DIFF.replace("src/x.c", "src/\033[2Jx.c"), "a file's name is no printable UTF-8"),
        (DIFF.encode().replace(b"src/x.c", b"src/\xff.c"), "a file's name is no printable UTF-8"),
        (DIFF.replace("-1,2", f"-1,{'2' * 5000}"), "src/x.c: hunk 1 is cut off or damaged"),
        (DIFF.replace("-1,2", f"-{'1' * 5000},2"), "src/x.c: hunk 1 is cut off or damaged"),
        (b"\x1f\x8bnot gzip", "foo.patch: "),
    ],
)
def test_refusals(tmp_path: Path, content: str | bytes, message: str) -> None:
    file = given(tmp_path, content)
    with pytest.raises(LabError) as refusal:
        patchfile.read(file)
    assert message in str(refusal.value)
    assert str(file) in str(refusal.value)


def test_carriage_return_within_a_line_ends_none() -> None:
    """git reads on, and so would apply what the lab took for text."""
    text = DIFF.replace("+zwei ö", "+zwei\rdiff --git a/y b/y\rnew file mode 120000")
    (file,) = diff.read(text.encode(), "")
    assert diff.with_prefix([file]) == text.encode()


def test_header_alone_is_prose(tmp_path: Path) -> None:
    (patch,) = patchfile.read(given(tmp_path, f"diff --git a/y b/y\nindex 1..2 100644\n\n{DIFF}"))
    assert patch.text.decode() == DIFF


@pytest.mark.parametrize("damage", ["cut", "overwritten", "huge"])
def test_attachment_whose_compression_is_damaged(tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(b" " * (65 << 20) if damage == "huge" else DIFF.encode())
    packed = {"cut": packed[:-20], "overwritten": packed[:12] + b"\xff" * 30, "huge": packed}[
        damage
    ]
    body = (
        "--X\nContent-Type: application/gzip\nContent-Transfer-Encoding: base64\n"
        'Content-Disposition: attachment; filename="v1.patch.gz"\n\n'
        f"{base64.encodebytes(packed).decode()}\n--X--\n"
    )
    headers = ("MIME-Version: 1.0", "Content-Type: multipart/mixed; boundary=X")
    file = given(tmp_path, mail("foo", body, *headers))
    with pytest.raises(
        LabError, match=r"v1\.patch\.gz: (damaged|is larger than 64 MiB)"
    ) as refusal:
        patchfile.read(file)
    assert str(file) in str(refusal.value)


def test_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"\xff.patch")
    file.write_text(DIFF)
    with pytest.raises(LabError, match=r"udcff\.patch': .*not in UTF-8; rename it"):
        patchfile.read(file)


HEADERS = (
    "Subject: ", "From: ", "Content-Type: multipart/mixed; boundary=", "Content-Type: text/x; ",
    "Content-Transfer-Encoding: ", 'Content-Disposition: attachment; filename="',
    "Content-Disposition: attachment; filename*=",
)  # fmt: skip
JUNK = (
    b"=?utf-8?q?", b"=?x?b?=?=", b"=?utf-8?b?\xff?=", b"\xff\xfe", b"charset=nosuch", b"utf-8'",
    b"%ff", b"\n ", b"\0", b"<@>,;:", b'"', b"a.patch", b"X", b"base64", b"x-uuencode",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@drawn(
    st.lists(
        st.tuples(st.sampled_from(HEADERS), st.lists(st.sampled_from(JUNK), max_size=5)), max_size=4
    )
)
def test_mail_with_damaged_headers(headers: list[tuple[str, list[bytes]]]) -> None:
    """It is read or refused, and what is read can be kept."""
    lines = [b"Message-ID: <x@example.org>"]
    lines += [header.encode() + b"".join(junk) for header, junk in headers]
    with tempfile.NamedTemporaryFile(suffix=".eml") as file:
        Path(file.name).write_bytes(b"\n".join([*lines, b"", b"--X", b"", DIFF.encode()]))
        with contextlib.suppress(LabError):
            for patch in patchfile.read(Path(file.name)):
                jsonfile.dumps([patch.name, patch.subject, patch.author])


def test_machine_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = given(tmp_path, DIFF)
    (tmp_path / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="git is not installed; scripts/setup build"):
        patchfile.read(file)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"nosuch.patch: No such file"):
        patchfile.read(tmp_path / "nosuch.patch")
