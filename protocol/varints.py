"""Unsigned varints, and the tagged fields that are made of them, read from a position in a buffer.

An unsigned varint has seven bits a byte, the lowest first; the top bit says that more follow. It
holds at most 32 bits (KIP-482). Reading past the end of the buffer raises IndexError, which the
callers turn into a ProtocolError of their own.
"""

from __future__ import annotations

from typing import Final

from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.schema import Buffer

UVARINT_BYTES_MAX: Final = 5
UVARINT_MAX: Final = 0xFFFF_FFFF


def encode_uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint; ValueError when it would have more than 32 bits."""
    if not 0 <= value <= UVARINT_MAX:
        raise ValueError(f"{value} does not fit in an unsigned varint of 32 bits")
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The unsigned varint at `position`, and the position after it."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    return read_uvarint_tail(buffer, position + 1, byte)


def read_uvarint_tail(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The same when the first byte has been read and said that more follow at `position`."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                break
            return value, position
    raise ProtocolError("a varint of more than 32 bits")


def skip_tagged_fields(where: str, buffer: Buffer, position: int, count: int) -> int:
    """The position after `count` tagged fields, none of which is known; `where` is for errors."""
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        left = len(buffer) - position
        if size > left:
            raise ProtocolError(f"{where}: a tagged field has {size} bytes, with {left} left")
        position += size
    return position
