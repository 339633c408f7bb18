"""The settings of a topic that its logs need, by Kafka's names with dots as underscores.

Kafka's defaults. Reading them from text, and what they mean elsewhere, is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one topic. A change replaces the whole (`PartitionLog.set_config`)."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    # The size at which an index counts as full and its segment rolls; nothing is preallocated.
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    # message.timestamp.type=LogAppendTime
    is_log_append_time: bool = False
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    # Whether cleanup.policy has `compact`.
    is_compacted: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = 86_400_000
    # Whether cleanup.policy has `delete`; without it only what lies below the log's start goes.
    is_deleted_by_retention: bool = True
    # -1 is no limit.
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    # A broker's setting in Kafka, here because the log is where producers are remembered.
    producer_id_expiration_ms: int = 86_400_000
    # asyncbroker.batch.decompressed.max.bytes, for the batches whose records have to be looked at.
    decompressed_bytes_max: int = 128 << 20
