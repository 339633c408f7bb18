"""Finds the fields of many records at once, with numpy.

Records lie one after the other, each after its length, so only a walk over the lengths finds where
they begin: a loop in Python (`record_ends`), a few bytes of work a record. Everything else is done
for all records together: each varint is gathered, checked and decoded as a column (the map of a
record is in `asyncbroker.protocol.records`).

What comes out are positions in the buffer, no copies. A compiled decoder takes the place of
`locate_fields` as a whole. Everything that does not fit is CorruptBatch, as in `records_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from asyncbroker.protocol.record_columns import record_ends
from asyncbroker.protocol.records import CorruptBatch

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Room after the last record, so that a varint that runs over its end is read and then refused.
PADDING: Final = bytes(16)

_VARINT_BYTES: Final = 5
_VARLONG_BYTES: Final = 10


@dataclass(slots=True)
class Spans:
    """Pieces of the buffer, by start and size; a size of -1 is null, its start is unused."""

    starts: Integers
    sizes: Integers


@dataclass(slots=True)
class Headers:
    """The headers of all records, in order; `counts` has how many each record has."""

    counts: Integers
    keys: Spans
    values: Spans


@dataclass(slots=True)
class Fields:
    """One entry a record in each array."""

    timestamp_deltas: Integers
    offset_deltas: Integers
    keys: Spans
    values: Spans
    headers: Headers | None


def locate_fields(
    data: bytes, payload_sizes: Sequence[int], record_counts: Sequence[int], *, with_headers: bool
) -> Fields:
    """The fields of the records in `data`: payloads of batches one after the other, then PADDING.

    Without `with_headers` headers are passed over unseen.
    """
    places: list[int] = []
    position = 0
    for size, count in zip(payload_sizes, record_counts, strict=True):
        places += record_ends(data, count, position, position + size)
        position += size
    buffer = np.frombuffer(data, np.uint8)
    ends = np.array(places, np.int64)
    begins = np.append(0, ends)[: len(ends)]
    lengths, at = _varints(buffer, begins, ends, _VARINT_BYTES)
    _require(lengths == ends - at, "a record's length")
    # The attributes of a record are one unused byte.
    timestamp_deltas, at = _varints(buffer, at + 1, ends, _VARLONG_BYTES)
    offset_deltas, at = _varints(buffer, at, ends, _VARINT_BYTES)
    keys, at = _spans(buffer, at, ends)
    values, at = _spans(buffer, at, ends)
    header_counts, at = _varints(buffer, at, ends, _VARINT_BYTES)
    _require((header_counts >= 0) & (header_counts * 2 <= ends - at), "a count of headers")
    _require((header_counts > 0) | (at == ends), "the end of a record")
    headers = _headers(buffer, at, ends, header_counts) if with_headers else None
    return Fields(timestamp_deltas, offset_deltas, keys, values, headers)


def _varints(
    buffer: Bytes, positions: Integers, ends: Integers, bytes_max: int
) -> tuple[Integers, Integers]:
    """The varint at each position, and the position after it, at most the record's end."""
    byte = buffer.take(positions)
    words = (byte & 0x7F).astype(np.uint64)
    after = positions + 1
    going_on = np.flatnonzero(byte & 0x80)
    shift = 7
    while going_on.size:
        if shift == 7 * bytes_max:
            raise CorruptBatch(f"a varint without an end in {bytes_max} bytes")
        byte = buffer.take(after[going_on])
        words[going_on] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        if shift == 63:
            _require(byte <= 1, "a varint of 64 bits")
        after[going_on] += 1
        going_on = going_on[byte >= 0x80]
        shift += 7
    _require(after <= ends, "a varint within its record")
    if bytes_max == _VARINT_BYTES and shift > 28:
        _require(words >> np.uint64(32) == 0, "a varint of 32 bits")
    signs = np.uint64(0) - (words & np.uint64(1))
    return ((words >> np.uint64(1)) ^ signs).view(np.int64), after


def _spans(buffer: Bytes, positions: Integers, ends: Integers) -> tuple[Spans, Integers]:
    """The nullable bytes at each position, and the position after them."""
    sizes, starts = _varints(buffer, positions, ends, _VARINT_BYTES)
    after = starts + np.maximum(sizes, 0)
    _require((sizes >= -1) & (after <= ends), "a key or value within its record")
    return Spans(starts, sizes), after


def _headers(buffer: Bytes, positions: Integers, ends: Integers, counts: Integers) -> Headers:
    """The headers of all records: first the first one of each record, then the second, ..."""
    # Where the headers of a record begin in the columns that come out.
    first_places = np.cumsum(counts) - counts
    total = int(counts.sum())
    keys = Spans(np.zeros(total, np.int64), np.zeros(total, np.int64))
    values = Spans(np.zeros(total, np.int64), np.zeros(total, np.int64))
    at = positions.copy()
    records = np.flatnonzero(counts)
    number = 0
    while records.size:
        places = first_places[records] + number
        key, after_key = _spans(buffer, at[records], ends[records])
        _require(key.sizes >= 0, "a header with a key")
        value, after = _spans(buffer, after_key, ends[records])
        keys.starts[places], keys.sizes[places] = key.starts, key.sizes
        values.starts[places], values.sizes[places] = value.starts, value.sizes
        at[records] = after
        number += 1
        records = records[counts[records] > number]
    _require(at == ends, "the end of a record")
    return Headers(counts, keys, values)


def _require(condition: npt.NDArray[np.bool_], what: str) -> None:
    if not condition.all():
        raise CorruptBatch(f"{what} is not where it should be")
