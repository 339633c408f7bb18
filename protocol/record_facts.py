"""What the records of a batch are, for who stores them: whether they are what the header says, the
largest timestamp among them, and which of them have no key.

A header can lie about all of this, and its CRC fits nevertheless: a batch whose records are fewer
or more than it says stops every reader that comes upon it. `check_records` walks over all records,
the lengths of keys, values and headers included, and makes no object of any. The compiled extension
does this at more than a gigabyte a second and lets other threads run meanwhile; without it it takes
microseconds a record.

The map of a record is in `records.py`. Not known here: codecs, and what a topic allows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from asyncbroker.protocol.batches import NO_TIMESTAMP, BatchHeader
from asyncbroker.protocol.compression import Buffer, CorruptBatch
from asyncbroker.protocol.native import RECORDS
from asyncbroker.protocol.records import records_of_payload

# A batch may hold a million records without keys; a few tell the producer what is wrong.
KEYLESS_TOLD_MAX: Final = 100


class RecordFacts(NamedTuple):
    """What the records are. The timestamps are those of the records themselves, whatever the header
    says of an append time; -1 if there are none. `has_all_offsets`: their offset deltas are 0, 1, 2
    and so on. `first_keyless` are the places of the first records without a key."""

    min_timestamp: int
    max_timestamp: int
    has_all_offsets: bool
    keyless_count: int
    first_keyless: list[int]


def check_records(payload: Buffer, header: BatchHeader) -> RecordFacts:
    """The facts about the records in the decompressed payload of a batch. Raises CorruptBatch if
    they are not as many, or not within the offsets, that the header says."""
    if RECORDS is None:
        return check_records_portably(payload, header)
    try:
        return RecordFacts(
            *RECORDS.check(
                payload, header.record_count, header.last_offset_delta, header.base_timestamp
            )
        )
    except ValueError as error:
        raise CorruptBatch(str(error)) from None


def check_plain_batch(batch: Buffer) -> BatchHeader | None:
    """The header of a batch that `check_batch` lets pass and whose records are what it says, found
    by one look of the extension, if the batch is one as most are: with neither compression nor any
    other attribute. None of all others, and without the extension."""
    if RECORDS is None:
        return None
    fields = RECORDS.check_plain(batch)
    return None if fields is None else BatchHeader(*fields)


def check_records_portably(payload: Buffer, header: BatchHeader) -> RecordFacts:
    """The same without the extension."""
    smallest = largest = NO_TIMESTAMP
    has_all_offsets = True
    keyless_count = 0
    first_keyless: list[int] = []
    for index, record in enumerate(records_of_payload(bytes(payload), header)):
        smallest = min(smallest, record.timestamp) if index else record.timestamp
        largest = max(largest, record.timestamp) if index else record.timestamp
        has_all_offsets &= record.offset - header.base_offset == index
        if record.key is None:
            keyless_count += 1
            if len(first_keyless) < KEYLESS_TOLD_MAX:
                first_keyless.append(index)
    return RecordFacts(smallest, largest, has_all_offsets, keyless_count, first_keyless)
