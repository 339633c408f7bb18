"""Text of strangers, made fit for a terminal and a line: nothing in it moves, colours or hides."""

from __future__ import annotations

from typing import Final

TEXT_LENGTH_MAX: Final = 200

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def printable(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """The text with all that is not a visible character or a blank written as an escape: control
    characters, line ends, marks that turn the direction of writing, lone surrogates."""
    cut = text[:length_max]
    if not cut.isprintable():
        cut = "".join(
            character if character.isprintable() else _escape(character) for character in cut
        )
    return cut if len(text) <= length_max else f"{cut}... ({len(text)} characters)"


def size_text(size: int) -> str:
    """A number of bytes, short: "214 B", "1.2 MiB"."""
    amount = float(size)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
