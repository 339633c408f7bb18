"""Whoever begins to read behind damage that nobody knows of yet gets what is there, and never what
comes later in its place: a damaged header may cover other batches."""

from __future__ import annotations

import pytest

from asyncbroker.log import checking
from asyncbroker.log.config import LogConfig
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    append,
    batch,
    copied,
    open_log,
    overwrite,
    with_config,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import batches, read_header

RECORDS = 2
BATCHES = 12
BATCH_BYTES = 128
"""A power of two: a length with a flipped bit ends where some other batch does."""
HEADER_BITS = 27 * 8
"""Offset, length, epoch, magic, CRC, attributes and last offset delta."""
DAMAGED = 3
"""The batch with the offsets 6 and 7, of the first segment's eight."""


def config(index_interval_bytes: int) -> LogConfig:
    return with_config(segment_bytes=8 * BATCH_BYTES, index_interval_bytes=index_interval_bytes)


def full_batch() -> bytearray:
    one = b"x" * 20
    header = read_header(batch(one, one))
    other = b"y" * (len(one) + BATCH_BYTES - header.size)
    return batch(one, other)


def written(index_interval_bytes: int) -> MemoryFiles:
    files = MemoryFiles()
    log = open_log(files, config=config(index_interval_bytes))
    for _ in range(BATCHES):
        assert len(full_batch()) == BATCH_BYTES
        append(log, full_batch())
    assert [segment.base_offset for segment in log.segments] == [0, 8 * RECORDS]
    log.close()
    return files


def first_read(log: PartitionLog, offset: int) -> int | ErrorCode:
    """The offset of the first record that a consumer gets who asks for this one, or the error."""
    try:
        for _ in range(3):
            located = log.locate(offset, 1 << 20, end_offset=log.end_offset)
            assert located is not None
            found = checking.checked(log, located, offset)
            if found is not None:
                header, _ = next(batches(found.read()))
                return max(header.base_offset, offset) if header.last_offset >= offset else -1
    except KafkaError as error:
        return error.code
    raise AssertionError("nothing is found")


@pytest.mark.parametrize("index_interval_bytes", [0, 300, 1 << 20])
def test_no_flipped_bit_of_a_header_has_a_reader_pass_over_what_is_there(
    index_interval_bytes: int,
) -> None:
    whole = written(index_interval_bytes)
    path = f"{DIRECTORY}/{0:020d}.log"
    data = whole.read_whole(path)
    damaged = {DAMAGED * RECORDS, DAMAGED * RECORDS + 1}
    for bit in range(HEADER_BITS):
        at = DAMAGED * BATCH_BYTES + bit // 8
        for offset in range(BATCHES * RECORDS):
            files = copied(whole)
            overwrite(files, path, at, bytes([data[at] ^ 1 << bit % 8]))
            log = open_log(
                files, config=config(index_interval_bytes), recovery_point=BATCHES * RECORDS
            )
            got = first_read(log, offset)
            allowed = {offset}
            if offset in damaged:
                # No CRC covers the offset, nor the epoch: there the records may be whole.
                allowed.add(ErrorCode.CORRUPT_MESSAGE)
            assert got in allowed, f"bit {bit}, offset {offset}: {got!r}"
