"""Record batches with a wrong byte, in a Produce request and in a Fetch response.

The batches are copied: what is in the log, or in the buffer of the connection, stays what it was.
"""

from __future__ import annotations

from typing import Any


def corrupt_request(request: Any, byte: int) -> None:
    """Of each batch of a Produce request, one byte becomes another."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records:
                partition.records = memoryview(_corrupted(bytes(partition.records), byte))


def with_records(response: Any) -> list[Any]:
    """The partitions of a Fetch response that have records."""
    return [
        partition
        for topic in response.responses
        for partition in topic.partitions
        if partition.records is not None and _size(partition.records)
    ]


def corrupt_response(partitions: list[Any], byte: int) -> None:
    """Of the records of each partition, one byte becomes another."""
    for partition in partitions:
        records = partition.records
        data = records.read() if hasattr(records, "read") else bytes(records)
        partition.records = bytes(_corrupted(data, byte))


def _size(records: Any) -> int:
    """Of bytes, or of a range of a file."""
    return int(records.size) if hasattr(records, "size") else len(records)


def _corrupted(data: bytes, byte: int) -> bytearray:
    """Raises IndexError for a byte that there is not."""
    corrupted = bytearray(data)
    corrupted[byte] ^= 0xFF
    return corrupted
