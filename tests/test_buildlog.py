"""What is told of a build that failed, from the words of the compiler and linker that are here."""

import subprocess
from pathlib import Path

from wallab.servers import buildlog


def said(folder: Path, *arguments: str) -> list[str]:
    """What cc says of C that it does not take; the files are in the folder."""
    result = subprocess.run(["cc", *arguments], cwd=folder, capture_output=True, text=True)
    assert result.returncode != 0
    return result.stderr.splitlines()


def test_link_error_names_the_symbol_once(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "void gone(void); void lost(void); void a(void) { gone(); gone(); lost(); }"
        "int main(void) { gone(); a(); return 0; }"
    )
    lines = said(tmp_path, "-o", "a", "a.c")
    reasons = buildlog.telling(
        ["[1/2] cc -c a.c", *lines, "ninja: build stopped: subcommand failed."]
    )
    assert [line.partition("undefined reference to ")[2].strip("`'") for line in reasons] == [
        "gone", "lost",
    ]  # fmt: skip


def test_compilers_line_is_said_once(tmp_path: Path) -> None:
    """As where a file is compiled for the server, for libraries and for programs."""
    (tmp_path / "a.c").write_text("int a(void) { return nosuch; }")
    lines = said(tmp_path, "-c", "a.c")
    reasons = buildlog.telling([*lines, "FAILED: a.o", *lines, "FAILED: a_shlib.o", *lines])
    assert len(reasons) == 1
    assert reasons[0].startswith("a.c:1:")
    assert "nosuch" in reasons[0]


def test_end_is_told_where_nothing_says_what_is_wrong() -> None:
    lines = [f"line {number}" for number in range(100)]
    assert buildlog.telling(lines) == lines[-buildlog.LAST :]
    alone = "collect2: error: ld returned 1 exit status"
    assert buildlog.telling([*lines, alone]) == [alone]


def test_result_of_makes_command_hides_no_words_of_that() -> None:
    """What fails is not always a compiler, and make only tells that it did."""
    lines = ["cat: secret: Permission denied", "make: *** [Makefile:2: world-bin] Error 1"]
    assert buildlog.telling(lines) == lines


def test_few_lines_are_told() -> None:
    lines = [f"a.c:{number}: error: x" for number in range(100)]
    assert buildlog.telling(lines) == lines[: buildlog.MOST]
