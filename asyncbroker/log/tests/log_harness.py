"""What the tests of the log share: small batches, logs in memory, and reading all of one back."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from asyncbroker.log.appended import Appended
from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import Files
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.protocol.records import (
    Compression,
    Record,
    batches,
    build_batch,
    check_batch,
    read_header,
    records_of,
)

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
DIRECTORY = "data/flights-0"
# Small enough that a few batches make several segments and several index entries.
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)


def batch(
    *values: bytes,
    timestamps: Iterable[int] | None = None,
    compression: Compression = Compression.NONE,
    **fields: Any,
) -> bytearray:
    """A batch of these values, as a producer sends it."""
    values = values or (b"value",)
    times = list(timestamps) if timestamps is not None else [NOW_MS] * len(values)
    records = [Record(0, time, b"k", value) for time, value in zip(times, values, strict=True)]
    return build_batch(records, compression=compression, **fields)


def from_producer(sequence: int, *values: bytes, producer_id: int = 7, epoch: int = 0) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def append(
    log: PartitionLog,
    data: bytearray | None = None,
    *,
    now_ms: int = NOW_MS,
    leader_epoch: int | None = None,
    is_client: bool = True,
) -> Appended:
    """Appends one batch, or a small one of its own."""
    data = batch() if data is None else data
    header = check_batch(data) if is_client else read_header(data)
    epoch = log.leader_epoch if leader_epoch is None else leader_epoch
    return log.append(data, header, leader_epoch=epoch, now_ms=now_ms, is_client=is_client)


def append_each(log: PartitionLog, count: int, size: int = 20) -> list[bytes]:
    """Appends `count` batches of one record each; their values."""
    values = [f"{log.end_offset + at}-".encode().ljust(size, b"x") for at in range(count)]
    for value in values:
        append(log, batch(value))
    return values


def open_log(
    files: Files | None = None,
    *,
    directory: str = DIRECTORY,
    config: LogConfig = SMALL,
    leader_epoch: int = 1,
    is_clean: bool = True,
    topic_id: bytes = TOPIC_ID,
    now_ms: int = NOW_MS,
    **more: Any,
) -> PartitionLog:
    """A log in memory, unless other files are given."""
    return PartitionLog.open(
        MemoryFiles() if files is None else files,
        directory,
        topic_id=topic_id,
        config=config,
        leader_epoch=leader_epoch,
        is_clean=is_clean,
        now_ms=now_ms,
        **more,
    )


def reopened(log: PartitionLog, files: Files, **more: Any) -> PartitionLog:
    """The log after a clean stop and start."""
    log.close()
    more.setdefault("recovery_point", log.end_offset)
    return open_log(files, directory=log.directory, config=log.config, **more)


def crashed(log: PartitionLog, files: Files, **more: Any) -> PartitionLog:
    """The log after its process was killed: what was written is there, nothing was tidied up."""
    log.close(clean=False)
    more.setdefault("recovery_point", log.durable_end_offset)
    return open_log(files, directory=log.directory, config=log.config, is_clean=False, **more)


def read_all(log: PartitionLog, *, bytes_max: int = 400) -> list[tuple[int, bytes | None]]:
    """Offsets and values of all records, read as a consumer reads them."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while (located := log.locate(offset, bytes_max, end_offset=log.end_offset)) is not None:
        for header, data in batches(located.read()):
            records = records_of(data, header)
            found += [
                (record.offset, record.value) for record in records if record.offset >= offset
            ]
            offset = header.next_offset
    return found


def values_of(log: PartitionLog) -> list[bytes | None]:
    return [value for _, value in read_all(log)]


def with_config(config: LogConfig = SMALL, **changes: Any) -> LogConfig:
    return replace(config, **changes)


def names(files: Files, directory: str = DIRECTORY) -> list[str]:
    return sorted(files.list_files(directory))


def copied(files: MemoryFiles) -> MemoryFiles:
    """The files as they are, for a test that damages them in many ways."""
    copy = MemoryFiles()
    copy._tree, copy._directories = deepcopy((files._tree, files._directories))
    return copy


def overwrite(files: Files, path: str, position: int, data: bytes) -> None:
    """Damages a file."""
    file = files.open(path)
    file.pwrite(data, position)
    file.close()


def truncate(files: Files, path: str, size: int) -> None:
    file = files.open(path)
    file.truncate(size)
    file.close()


def fill_up(files: MemoryFiles) -> None:
    """The disk is full in the middle of the next write, and not after that."""

    def half(operation: str, path: str) -> None:
        if operation == "pwrite":
            files.on_call = None
            file = files.open(path)
            file.pwrite(b"half of it", file.size())
            raise OSError(errno.ENOSPC, "full")

    files.on_call = half


def flip(files: Files, path: str, position: int) -> None:
    """Flips all bits of one byte."""
    byte = files.read_whole(path)[position]
    overwrite(files, path, position, bytes([byte ^ 0xFF]))
