"""The batches of `__consumer_offsets`: how records are cut into them, and read back at a start.

Not known here: who writes, and who waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from asyncbroker.coordinator.effects import Record as KeyAndValue
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.records import CorruptBatch, batches, records_of, verify_crc

if TYPE_CHECKING:
    from asyncbroker.coordinator.coordinator import GroupCoordinator
    from asyncbroker.log.file_range import FileRange

logger = logging.getLogger(__name__)

# Small enough to be appended on the event loop.
BATCH_BYTES_MAX: Final = 128 * 1024

CONTROL_TYPE_COMMIT: Final = 1


def parts_of(records: list[KeyAndValue]) -> Iterator[list[KeyAndValue]]:
    """The records cut into batches, in order."""
    part: list[KeyAndValue] = []
    part_bytes = 0
    for record in records:
        key, value = record
        part.append(record)
        part_bytes += len(key) + len(value or b"")
        if part_bytes >= BATCH_BYTES_MAX:
            yield part
            part, part_bytes = [], 0
    if part:
        yield part


def replay_range(coordinator: GroupCoordinator, found: FileRange, name: str) -> int:
    """In a worker: applies a stretch of the partition; returns the offset after it."""
    next_offset = -1
    for header, batch in batches(found.read()):
        if not verify_crc(batch, header):
            raise CorruptBatch(f"the CRC of the batch at offset {header.base_offset} is wrong")
        producer_id = header.producer_id if header.is_transactional else None
        for record in records_of(batch, header):
            if record.key is None:
                continue
            if header.is_control:
                kind = int.from_bytes(record.key[2:4], "big")
                coordinator.replay_marker(header.producer_id, is_commit=kind == CONTROL_TYPE_COMMIT)
                continue
            try:
                coordinator.replay(record.key, record.value, producer_id)
            except ProtocolError as error:
                logger.warning("%s at offset %d is passed over: %s", name, record.offset, error)
        next_offset = header.next_offset
    if next_offset < 0:
        raise CorruptBatch(f"{name} has no whole batch where one should be")
    return next_offset
