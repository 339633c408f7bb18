"""Reads Java properties files, the syntax of Kafka's `server.properties`.

A line is a key, `=` or `:` or blanks, and a value; `#` and `!` begin a comment line; a backslash
at the end continues the line, elsewhere it escapes what follows (`\\t`, `\\n`, `\\u0041`, `\\:`).
The last of two equal keys wins, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANKS: Final = " \t\f"

# A key ends at the first separator or blank that is not escaped.
KEY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """The entries of a properties file, in its order."""
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        match = KEY.match(line)
        assert match is not None, "the pattern matches the empty text too"
        entries[_unescape(match[1])] = _unescape(line[match.end() :])
    return entries


def _logical_lines(text: str) -> Iterator[str]:
    """Joins continued lines; leaves out blank ones and comments."""
    pending = ""
    for natural_line in re.split(r"\r\n|\r|\n", text):
        line = natural_line.lstrip(BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            yield pending + line
            pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return ESCAPE.sub(lambda match: _unescaped(match[1]), text)


def _unescaped(escaped: str) -> str:
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    return ESCAPES.get(escaped, escaped)
