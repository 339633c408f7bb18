"""Captured bytes, in whatever form they were kept: hexadecimal text becomes bytes, bytes frames."""

from __future__ import annotations

import re
from typing import Final

_HEX_DIGITS: Final = re.compile(r"[0-9a-fA-F\s:]*")
_ESCAPES: Final = re.compile(r"(?:\\x[0-9a-fA-F]{2}|\s)+")
_DUMP_LINE: Final = re.compile(r"\s*([0-9a-fA-F]{4,16}):?\s+(\S.*)")
_DUMP_BYTES: Final = re.compile(r"(?:[0-9a-fA-F]{2}){1,2}")

CAPTURE_MAGICS: Final = frozenset(
    {b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d"}
    | {b"\x0a\x0d\x0d\x0a"}
)
"""How files of pcap and pcapng begin."""


def bytes_of(data: bytes) -> bytes:
    """The bytes that a file stands for: those of a hex dump (of xxd, hexdump -C, Wireshark, or bare
    digits, or `\\x00` escapes), otherwise its own."""
    try:
        text = data.decode("ascii").strip()
    except UnicodeDecodeError:
        return data
    if not text:
        return data
    dumped = _of_dump(text)
    if dumped is not None:
        return dumped
    if _ESCAPES.fullmatch(text):
        return bytes.fromhex(re.sub(r"\\x|\s", "", text))
    digits = re.sub(r"[\s:]", "", text)
    if _HEX_DIGITS.fullmatch(text) and len(digits) % 2 == 0:
        return bytes.fromhex(digits)
    return data


def frames_of(data: bytes) -> tuple[list[bytes], int]:
    """The frames of a stream, and how many bytes of an unfinished one are left over. Bytes that do
    not begin with the size of a frame are one frame without its size."""
    frames = []
    position = 0
    while len(data) - position >= 4:
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        if size < 0 or position + 4 + size > len(data):
            break
        frames.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    if not frames and data:
        return [data], 0
    return frames, len(data) - position


def _of_dump(text: str) -> bytes | None:
    """The bytes of a dump whose lines begin with where they belong; None for anything else."""
    found = bytearray()
    for line in text.splitlines():
        match = _DUMP_LINE.fullmatch(line)
        if match is None or int(match[1], 16) != len(found):
            # hexdump ends with a line that has nothing but the size.
            is_end = found and line.strip().lower().lstrip("0") == f"{len(found):x}"
            if is_end or not line.strip():
                continue
            return None
        # Two blanks and more stand before the text column, and between two halves.
        for word in match[2].split("|")[0].split(" ")[:18]:
            if _DUMP_BYTES.fullmatch(word) and len(found) - int(match[1], 16) < 16:
                found += bytes.fromhex(word)
    return bytes(found)
