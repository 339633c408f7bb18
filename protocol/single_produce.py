"""The Produce request that nearly all are, with one batch for one partition: read without objects.

`read_single` finds the few fields of such a request in its frame and nothing else; whatever is not
just that (several partitions, a transaction, null records, tagged fields, bytes left over, bytes
that are no request at all) is for the codec, which also says what is wrong. `single_answer` packs
the whole frame of the response to one that succeeded. Tests hold both to the codecs.

    versions 3 to 8                              from 9 on, flexible
    int16  -1: no transactional id               uvarint 0
    int16  acks                                  int16
    int32  timeout in ms                         int32
    int32  1 topic                               uvarint 2
    int16  size of its name, then the name       uvarint size + 1, then the name
    int32  1 partition                           uvarint 2
    int32  its index                             int32
    int32  size of the batch, then the batch     uvarint size + 1, then the batch
                                                 three times uvarint 0: no tagged fields
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Final

from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.varints import read_uvarint_tail

FLEXIBLE_FROM: Final = 9
LOG_START_OFFSET_FROM: Final = 5
RECORD_ERRORS_FROM: Final = 8

_START: Final = Struct(">hhiih")
_PARTITION: Final = Struct(">iii")
_FLEXIBLE_START: Final = Struct(">BhiBB")
_FLEXIBLE_PARTITION: Final = Struct(">BiB")
_NO_TAGGED_FIELDS: Final = b"\0\0\0"
# A size that is one byte as an unsigned varint, raised by one.
_NAME_BYTES_MAX: Final = 126

Single = tuple[int, int, bytes, int, memoryview]
"""Acks, timeout in ms, name of the topic, index of the partition, record batch."""


def read_single(frame: bytearray, position: int, version: int) -> Single | None:
    """What the body at `position` asks for, up to the end of the frame; None if the codec must look
    at it. The batch is a view of the frame."""
    try:
        if version >= FLEXIBLE_FROM:
            return _read_flexible(frame, position)
        no_id, acks, timeout_ms, topic_count, size = _START.unpack_from(frame, position)
        begin = position + 14
        end = begin + size
        partition_count, index, batch_bytes = _PARTITION.unpack_from(frame, end)
    except (StructError, IndexError, ProtocolError):
        return None
    start = end + 12
    if (
        no_id != -1
        or topic_count != 1
        or not 0 <= size <= _NAME_BYTES_MAX
        or partition_count != 1
        or batch_bytes < 0
        or start + batch_bytes != len(frame)
    ):
        return None
    return acks, timeout_ms, bytes(frame[begin:end]), index, memoryview(frame)[start:]


def _read_flexible(frame: bytearray, position: int) -> Single | None:
    has_id, acks, timeout_ms, topic_count, size = _FLEXIBLE_START.unpack_from(frame, position)
    begin = position + 9
    end = begin + size - 1
    partition_count, index, batch_bytes = _FLEXIBLE_PARTITION.unpack_from(frame, end)
    start = end + 6
    if batch_bytes > 127:
        batch_bytes, start = read_uvarint_tail(frame, start, batch_bytes)
    stop = start + batch_bytes - 1
    if (
        has_id
        or topic_count != 2
        or not 0 < size <= _NAME_BYTES_MAX + 1
        or partition_count != 2
        or batch_bytes == 0
        or stop + 3 != len(frame)
        or frame[stop:] != _NO_TAGGED_FIELDS
    ):
        return None
    return acks, timeout_ms, bytes(frame[begin:end]), index, memoryview(frame)[start:stop]


def single_answer(
    version: int,
    correlation_id: int,
    name: bytes,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """The whole frame of the response to a request that `read_single` has read: a success."""
    layout, head, tail = _layout(version, len(name))
    offsets: tuple[int, ...] = (base_offset, log_append_time_ms, log_start_offset)
    if version >= FLEXIBLE_FROM:
        topic = (0, 2, len(name) + 1, name, 2, index, 0)
        return layout.pack(head, correlation_id, *topic, *offsets, tail)
    if version < LOG_START_OFFSET_FROM:
        offsets = offsets[:2]
    return layout.pack(head, correlation_id, 1, len(name), name, 1, index, 0, *offsets, tail)


@cache
def _layout(version: int, name_bytes: int) -> tuple[Struct, int, bytes]:
    """The frame of an answer, the size that it begins with, and what comes behind the offsets: no
    record errors, no message, no throttling."""
    if version >= FLEXIBLE_FROM:
        tail = b"\1\0\0\0" + bytes(4) + b"\0"
        format = f">iIBBB{name_bytes}sBihqqq{len(tail)}s"
    else:
        tail = bytes(4) + b"\xff\xff" + bytes(4) if version >= RECORD_ERRORS_FROM else bytes(4)
        offsets = "qqq" if version >= LOG_START_OFFSET_FROM else "qq"
        format = f">iIih{name_bytes}siih{offsets}{len(tail)}s"
    layout = Struct(format)
    return layout, layout.size - 4, tail
