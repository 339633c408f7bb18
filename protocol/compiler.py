"""Lowers the construct `Struct` of one message version to straight-line Python, once, at first use.

What makes the code fast: one function per message with nested structs and loops inlined; adjacent
fields of fixed size, and the length that follows them, are read or written by one call of `struct`
(a "run"); objects are made without `__init__` and filled slot by slot. What makes decoders safe:

- A fixed-size field past the end of the buffer raises by itself (`struct.error`, or `IndexError`
  for a single byte), which `Codec` turns into a ProtocolError. A slice would not raise, so every
  length is compared with the end of the buffer before slicing.
- The count of an array times the least size of an item may not exceed the bytes that are left, and
  counts are summed over the message and held to a limit, both before any item is made.
- A tagged field must end where its size says. It may meanwhile have read past that, but never past
  the buffer.

So no number in the bytes leads to work or memory beyond the bytes that came. As an example, the
decoder of a flexible struct of an int32, a string and tagged fields, none of them known:

    def decode(buffer, position, items_left):
        end = len(buffer)
        message = new(Example)
        message.index, n = unpack_from_iB(buffer, position)
        position += 5
        if n > 127:
            n, position = read_uvarint_tail(buffer, position, n)
        n -= 1
        stop = position + n
        if n < 0 or stop > end:
            raise bad_length('Example v9: name', n, end - position)
        if n > 10922:
            long_string('Example v9: name', buffer[position:stop])
        message.name = str(buffer[position:stop], 'utf-8', 'replace')
        position = stop
        n = buffer[position]
        position += 1
        if n > 127:
            n, position = read_uvarint_tail(buffer, position, n)
        if n:
            position = skip_tagged_fields('Example v9: ', buffer, position, n)
        return message, position

The parts: `source.py` collects lines and knows sizes and formats, `decoder_source.py` and
`encoder_source.py` write the two functions. The text stays in `linecache`, so that tracebacks and
debuggers show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncbroker.protocol.decoder_source import DecoderSource
from asyncbroker.protocol.encoder_source import EncoderSource
from asyncbroker.protocol.primitives import MessageStruct
from asyncbroker.protocol.schema import Buffer


def compile_decoder(struct: MessageStruct) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    """A function of a buffer, a position and the array items allowed; it returns the message at
    that position and the position after it."""
    return DecoderSource(struct).source.compile("decode")


def compile_encoder(struct: MessageStruct) -> Callable[[Any], list[Any]]:
    """A function of a message; it returns the parts of `Codec.encode_parts`."""
    return EncoderSource(struct).source.compile("encode")
