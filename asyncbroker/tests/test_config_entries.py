"""Where values of settings come from, as Kafka 4.3 answers it."""

from __future__ import annotations

import dataclasses

import pytest

from asyncbroker.commands.serve import with_listeners
from asyncbroker.config import BrokerConfig
from asyncbroker.config_entries import (
    ConfigSource,
    broker_entries,
    broker_entry,
    dynamic_default_entries,
    is_dynamic,
    topic_entries,
    topic_entry,
    topic_values,
)
from asyncbroker.log.config import LogConfig
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import Compression
from asyncbroker.settings import topic_settings
from asyncbroker.topic_config import TopicConfigs, automatic_topic, check_overrides

TOPIC, STATIC, DEFAULT = ConfigSource.TOPIC, ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT


def config_of(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_settings({name.replace("_", "."): v for name, v in settings.items()})


def test_a_topics_own_value_goes_first_and_the_brokers_follow_as_synonyms() -> None:
    entry = topic_entry(
        "cleanup.policy", {"cleanup.policy": "compact"}, config_of(log_cleanup_policy="delete")
    )
    assert (entry.value, entry.source) == ("compact", TOPIC)
    assert entry.synonyms == (
        ("cleanup.policy", "compact", TOPIC),
        ("log.cleanup.policy", "delete", STATIC),
        ("log.cleanup.policy", "delete", DEFAULT),
    )


def test_synonyms_of_retention_go_from_ms_to_minutes_to_hours() -> None:
    stand_ins = {"log_retention_hours": "7", "log_retention_minutes": "30"}
    synonyms = (
        ("log.retention.minutes", "30", STATIC),
        ("log.retention.hours", "7", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    )
    config = config_of(log_retention_ms="5", **stand_ins)
    entry = topic_entry("retention.ms", {}, config)
    assert (entry.value, entry.source) == ("5", STATIC)
    assert entry.synonyms == (("log.retention.ms", "5", STATIC), *synonyms)
    # Not told without the name itself: Kafka looks for that, and for what comes after it.
    config = config_of(**stand_ins)
    entry = topic_entry("retention.ms", {}, config)
    assert (entry.value, entry.source, entry.synonyms) == ("1800000", DEFAULT, ())
    entry = broker_entry("log.retention.minutes", config)
    assert (entry.value, entry.source, entry.synonyms) == ("30", STATIC, synonyms)


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({}, "retention.ms", "604800000"),
        ({"log_retention_hours": "-1"}, "retention.ms", "-1"),
        ({"log_retention_ms": "5"}, "retention.ms", "5"),
        ({"log_roll_hours": "5"}, "segment.ms", "18000000"),
        ({"log_roll_jitter_hours": "1"}, "segment.jitter.ms", "3600000"),
        ({"log_flush_scheduler_interval_ms": "9"}, "flush.ms", "9"),
        ({"message_max_bytes": "77"}, "max.message.bytes", "77"),
        ({}, "remote.storage.enable", "false"),
    ],
)
def test_topics_inherit_from_the_broker(settings: dict[str, str], name: str, value: str) -> None:
    assert topic_entry(name, {}, config_of(**settings)).value == value


def test_every_topic_setting_has_a_value_that_it_takes() -> None:
    values = topic_values(topic_settings(), {}, config_of())
    assert None not in values.values()
    assert [entry.setting.name for entry in topic_entries({}, config_of())] == list(values)


def test_dynamic_settings_go_before_static_ones() -> None:
    config = config_of(log_segment_bytes="2000000").with_dynamic(
        dynamic={"log.segment.bytes": "4000000"}, dynamic_default={"log.segment.bytes": "3000000"}
    )
    entry = topic_entry("segment.bytes", {}, config)
    assert [(synonym.value, synonym.source.name) for synonym in entry.synonyms] == [
        ("4000000", "DYNAMIC_BROKER"),
        ("3000000", "DYNAMIC_DEFAULT_BROKER"),
        ("2000000", "STATIC_BROKER"),
        ("1073741824", "DEFAULT"),
    ]
    assert TopicConfigs(config).of({}).log.segment_bytes == 4_000_000
    assert [entry.setting.name for entry in dynamic_default_entries(config)] == [
        "log.segment.bytes"
    ]


def test_a_broker_tells_all_settings_and_which_of_them_can_change() -> None:
    entries = {entry.setting.name: entry for entry in broker_entries(config_of(node_id="3"))}
    assert len(entries) > 340
    assert (entries["node.id"].value, entries["node.id"].source) == ("3", STATIC)
    assert entries["node.id"].is_read_only
    assert not entries["log.segment.bytes"].is_read_only
    assert entries["log.retention.ms"].value is None
    assert entries["log.retention.hours"].value == "168"
    assert is_dynamic("max.connections")
    assert not is_dynamic("log.roll.hours")


def test_a_setting_without_any_value_has_no_synonyms() -> None:
    entry = broker_entry("broker.rack", config_of())
    assert (entry.value, entry.source, entry.synonyms) == (None, DEFAULT, ())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"segment.byte": "1"}, "segment.byte: a topic has no such setting; did you mean segment"),
        ({"segment.bytes": "1"}, "segment.bytes=1: must be a whole number of 1048576 or more"),
        ({"cleanup.policy": "vacuum"}, "cleanup.policy=vacuum: must be a list of compact, delete"),
        ({"retention.ms": None}, "retention.ms: there is no value"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "is above"),
        ({"remote.storage.enable": "true"}, "there is no tiered storage here"),
        ({"leader.replication.throttled.replicas": "all"}, "must be \\* or a list of"),
    ],
)
def test_bad_settings_of_a_topic_are_invalid_config(
    overrides: dict[str, str | None], message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as caught:
        check_overrides(overrides, config_of())
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_settings_without_effect_are_taken_and_kept() -> None:
    overrides = {
        "follower.replication.throttled.replicas": "*",
        "local.retention.bytes": "-2",
        "unclean.leader.election.enable": "true",
        "compression.zstd.level": "19",
        "preallocate": "TRUE",
    }
    assert check_overrides(dict(overrides), config_of()) == overrides


def test_the_log_and_produce_get_what_the_settings_say() -> None:
    config = TopicConfigs(config_of(asyncbroker_batch_decompressed_max_bytes="999")).of(
        {
            "message.timestamp.type": "LogAppendTime",
            "compression.type": "zstd",
            "cleanup.policy": "compact,delete",
            "min.insync.replicas": "2",
            "max.message.bytes": "100",
        }
    )
    assert config.log.is_log_append_time
    assert config.log.max_message_bytes == 100
    assert config.rules.compression is Compression.ZSTD
    assert config.rules.requires_keys
    assert config.rules.min_insync_replicas == 2
    assert config.rules.decompressed_bytes_max == 999


def test_a_topic_without_settings_of_its_own_keeps_kafkas_defaults() -> None:
    config = TopicConfigs(config_of()).of({})
    assert config.log == LogConfig()
    assert config.rules.compression is None
    assert not config.rules.requires_keys


@pytest.mark.parametrize(
    ("name", "compression"), [("uncompressed", Compression.NONE), ("snappy", Compression.SNAPPY)]
)
def test_codecs_go_by_kafkas_names(name: str, compression: Compression) -> None:
    assert TopicConfigs(config_of()).of({"compression.type": name}).rules.compression is compression


def test_topics_with_equal_settings_share_them() -> None:
    configs = TopicConfigs(config_of())
    one = configs.of({"retention.ms": "1", "segment.ms": "2"})
    assert configs.of({"segment.ms": "2", "retention.ms": "1"}) is one


def test_offsets_are_kept_in_a_compacted_topic_of_the_configured_size() -> None:
    config = config_of(num_partitions="6", offsets_topic_num_partitions="4")
    assert automatic_topic("clicks", config) == (6, {})
    assert automatic_topic("__consumer_offsets", config) == (
        4,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        },
    )


def test_offsets_can_be_kept_when_their_segments_are_to_be_smaller_than_any_topics_may() -> None:
    config = config_of(offsets_topic_segment_bytes="1000")
    _, overrides = automatic_topic("__consumer_offsets", config)
    assert TopicConfigs(config).of(overrides).log.segment_bytes == 1024 * 1024


def test_what_options_gave_in_place_of_settings_is_told_as_what_was_set() -> None:
    given = dataclasses.replace(
        with_listeners(config_of(log_dirs="/elsewhere"), ("[::1]:9093", "127.0.0.1:0"), ()),
        data_directory="/data",
    )
    config = dataclasses.replace(given, options={**given.options, "log.dirs": "/data"})
    for name, value in (
        ("listeners", "PLAINTEXT://[::1]:9093,PLAINTEXT2://127.0.0.1:0"),
        ("log.dirs", "/data"),
    ):
        entry = broker_entry(name, config)
        assert (entry.value, entry.source) == (value, STATIC)
    # Which is not what the settings are read from when one of them is altered.
    changed = config.with_dynamic(dynamic={"message.max.bytes": "77"}, dynamic_default={})
    assert changed.listeners == config.listeners
    assert changed.data_directory == "/data"
