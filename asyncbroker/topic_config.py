"""A topic's settings: checking those that are set for it, and what follows from all of them.

What is set for the topic itself (its overrides) goes before what it inherits from the broker, see
`config_entries.py`. Of the result each part of the broker gets what it needs: the log its
`LogConfig`, Produce its `BatchRules`. Topics with the same overrides share one `TopicConfig`, since
there may be thousands of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.config import BrokerConfig
from asyncbroker.config_entries import topic_entry, topic_values
from asyncbroker.log.config import LogConfig
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.settings import InvalidSetting, Value, nearest, topic_settings
from asyncbroker.topic_names import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from asyncbroker.batch_rules import BatchRules

# Values of `compression.type` that are no codec's name: `producer` keeps the batch's own.
CODEC_OF: Final = {"producer": None, "uncompressed": "none"}

# The least that segment.bytes may be.
SEGMENT_BYTES_MIN: Final = 1024 * 1024

COMPACTION_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic in force, in the shapes in which they are used."""

    overrides: Mapping[str, str]
    log: LogConfig
    rules: BatchRules


class TopicConfigs:
    """Makes the `TopicConfig` of each set of overrides, under one configuration of the broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self.broker_config = config
        self._made: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        # What a topic without overrides has. Others differ from it in these alone.
        self._inherited: dict[str, Value] = {}

    def of(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The settings of a topic with these overrides, which have been checked."""
        key = tuple(sorted(overrides.items()))
        made = self._made.get(key)
        if made is None:
            if not self._inherited:
                self._inherited = topic_values(topic_settings(), {}, self.broker_config)
            own = topic_values(overrides, overrides, self.broker_config)
            values = {**self._inherited, **own}
            made = self._made[key] = TopicConfig(
                overrides=dict(key),
                log=_log_config(values, self.broker_config),
                rules=_batch_rules(values, self.broker_config),
            )
        return made


def automatic_topic(name: str, config: BrokerConfig) -> tuple[int, dict[str, str]]:
    """Partitions and overrides of a topic that nobody has asked for in so many words."""
    if name == GROUP_METADATA_TOPIC:
        return config.offsets_topic_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            # The broker's setting may be less than any topic's.
            "segment.bytes": str(max(config.offsets_topic_segment_bytes, SEGMENT_BYTES_MIN)),
        }
    return config.num_partitions, {}


def check_overrides(overrides: Mapping[str, str | None], config: BrokerConfig) -> dict[str, str]:
    """The overrides, if a topic can have them; KafkaError(INVALID_CONFIG) otherwise."""
    checked: dict[str, str] = {}
    for name, text in overrides.items():
        setting = topic_settings().get(name)
        if setting is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name}: a topic has no such setting{nearest(name, topic_settings())}",
            )
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: there is no value")
        try:
            setting.parse(text)
        except InvalidSetting as mistake:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(mistake)) from mistake
        checked[name] = text.strip()
    _check_together(checked, config)
    return checked


def _check_together(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """Rules between settings, as Kafka has them."""
    if not overrides.keys().isdisjoint(COMPACTION_LAGS):
        lags = [topic_entry(name, overrides, config).value or "" for name in COMPACTION_LAGS]
        if int(lags[0]) > int(lags[1]):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"min.compaction.lag.ms={lags[0]} is above max.compaction.lag.ms={lags[1]}",
            )
    if overrides.get("remote.storage.enable", "false").lower() != "false":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "remote.storage.enable=true: there is no tiered storage here"
        )


def _log_config(values: Mapping[str, Any], config: BrokerConfig) -> LogConfig:
    is_compacted = "compact" in values["cleanup.policy"]
    segment_ms = values["segment.ms"]
    if is_compacted:
        # Or the newest records would wait longer than that for their compaction.
        segment_ms = min(segment_ms, values["max.compaction.lag.ms"])
    return LogConfig(
        segment_bytes=values["segment.bytes"],
        segment_ms=segment_ms,
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        max_message_bytes=values["max.message.bytes"],
        is_log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        is_compacted=is_compacted,
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        delete_retention_ms=values["delete.retention.ms"],
        is_deleted_by_retention="delete" in values["cleanup.policy"],
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        decompressed_bytes_max=config.batch_decompressed_max_bytes,
    )


def _batch_rules(values: Mapping[str, Any], config: BrokerConfig) -> BatchRules:
    # Imported here: a broker that has no topic yet need not know how to read batches.
    from asyncbroker.batch_rules import BatchRules
    from asyncbroker.protocol.records import Compression

    codec = CODEC_OF.get(values["compression.type"], values["compression.type"])
    return BatchRules(
        compression=None if codec is None else Compression[codec.upper()],
        requires_keys="compact" in values["cleanup.policy"],
        min_insync_replicas=values["min.insync.replicas"],
        decompressed_bytes_max=config.batch_decompressed_max_bytes,
        check_compressed_bytes_max=config.check_compressed_max_bytes,
    )
