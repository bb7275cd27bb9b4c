"""What a build's log tells of why it failed."""

import re

MOST = 8
"""Lines that are told."""

LAST = 15
"""Lines of the end that are told where none says what is wrong."""

_WRONG = re.compile(r"(?i:error:)|ERROR")
_UNLINKED = re.compile(r"undefined (?:reference to|symbol)|multiple definition of", re.IGNORECASE)
_RESULT = re.compile(r"collect2: error: ld returned|linker command failed|^make\b.*\*\*\*")
"""That the linker failed, or a command of make's, of which other lines tell why."""


def telling(lines: list[str]) -> list[str]:
    """Return the lines that say what is wrong, each once: the compiler's and the linker's.

    A file may be compiled several times, for the server and for libraries, with the same words;
    a symbol that is not there may be needed in many places, of which the first is told.
    """
    symbols: set[str] = set()
    wrong: list[str] = []
    for line in dict.fromkeys(map(str.strip, lines)):
        if unlinked := _UNLINKED.search(line):
            symbol = line[unlinked.start() :]
            if symbol not in symbols:
                symbols.add(symbol)
                wrong.append(line)
        elif _WRONG.search(line):
            wrong.append(line)
    reasons = [line for line in wrong if not _RESULT.search(line)]
    return (reasons or wrong)[:MOST] or lines[-LAST:]
