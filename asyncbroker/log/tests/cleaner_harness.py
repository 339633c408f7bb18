"""What the tests of compaction share: logs with keys, cleaning them at once, and reading them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from asyncbroker.log.cleaner import Cleaning, Replacement
from asyncbroker.log.cleaner_plan import plan_cleaning
from asyncbroker.log.config import LogConfig
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import NOW_MS, append
from asyncbroker.protocol.records import (
    BatchHeader,
    Record,
    batches,
    build_batch,
    records_of,
)

DAY_MS = 86_400_000
COMPACTED = LogConfig(segment_bytes=600, index_interval_bytes=150, is_compacted=True)


class Kept(NamedTuple):
    """A record that can be read."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def put(
    log: PartitionLog,
    *pairs: tuple[bytes | None, bytes | None],
    time_ms: int = NOW_MS,
    is_client: bool = True,
    **fields: Any,
) -> int:
    """Appends a batch of these keys and values; its base offset."""
    records = [Record(0, time_ms, key, value) for key, value in pairs]
    batch = build_batch(records, **fields)
    return append(log, batch, now_ms=time_ms, is_client=is_client).base_offset


def marker(log: PartitionLog, producer_id: int, *, commit: bool, time_ms: int = NOW_MS) -> None:
    """Ends a producer's transaction."""
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    put(
        log,
        (key, bytes(6)),
        time_ms=time_ms,
        is_client=False,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def roll(log: PartitionLog, now_ms: int = NOW_MS) -> None:
    """Ends the newest segment with a record of a key that is in no test, in a new one."""
    config = log.config
    log.set_config(LogConfig(**{**_fields(config), "segment_bytes": log.active_size}))
    put(log, (b"end of segment", bytes(8)), time_ms=now_ms, is_client=False)
    log.set_config(config)


def _fields(config: LogConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in LogConfig.__dataclass_fields__}


def clean(
    log: PartitionLog,
    *,
    now_ms: int = NOW_MS,
    cleaned_offset: int | None = None,
    key_bytes_max: int = 1 << 20,
) -> Cleaning:
    """Compacts what may be compacted, due or not."""
    limit_offset = min(log.end_offset, log.last_stable_offset)
    plan = plan_cleaning(log, cleaned_offset, limit_offset, now_ms)
    cleaning = Cleaning(log, plan, now_ms, key_bytes_max)
    for step in cleaning.steps():
        if isinstance(step, Replacement):
            step.is_shown = log.replace_segments(step.replaced, step.cleaned)
    return cleaning


def batches_of(log: PartitionLog, bytes_max: int = 300) -> list[tuple[BatchHeader, bytes]]:
    """All batches, read as a consumer reads them."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while (located := log.locate(offset, bytes_max, end_offset=log.end_offset)) is not None:
        for header, data in batches(located.read()):
            found.append((header, bytes(data)))
            offset = header.next_offset
    return found


def kept(log: PartitionLog) -> list[Kept]:
    """All records but those of control batches and those that end segments."""
    return [
        Kept(record.offset, record.key, record.value, record.timestamp)
        for header, data in batches_of(log)
        if not header.is_control
        for record in records_of(data, header)
        if record.key != b"end of segment"
    ]


def offsets(records: Iterable[Kept]) -> list[int]:
    return [record.offset for record in records]
