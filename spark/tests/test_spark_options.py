"""The options: names, defaults and refusals of Spark's Kafka connector, and our own warnings."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.client.partitions import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from asyncbroker.client.security import Security
from asyncbroker.spark.columns import full_schema, projected_columns
from asyncbroker.spark.offset_limits import (
    PartitionOffsets,
    PartitionTimestamps,
    SameOffset,
    SameTimestamp,
)
from asyncbroker.spark.options import (
    Assign,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    warn_of_ineffective,
)

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
MINIMAL = {**SERVERS, "subscribe": "flights"}


def parse(**options: str) -> ReadOptions:
    """Options on top of the minimal ones; double underscores stand for dots."""
    return ReadOptions.parse(
        MINIMAL | {name.replace("__", "."): value for name, value in options.items()}
    )


def test_defaults_are_those_of_a_batch_query() -> None:
    options = parse()
    assert options.bootstrap_servers == "broker:9092"
    assert options.strategy == Subscribe(("flights",))
    assert options.starting == SameOffset(EARLIEST)
    assert options.ending == SameOffset(LATEST)
    assert options.min_partitions is None
    assert options.max_records_per_partition is None
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.isolation_level == READ_UNCOMMITTED


def test_names_are_case_insensitive() -> None:
    options = ReadOptions.parse(
        {
            "KAFKA.Bootstrap.Servers": "a:1",
            "SUBSCRIBE": "t",
            "includeheaders": "TRUE",
            "FailOnDataLoss": "False",
            "kafka.ISOLATION.level": "READ_COMMITTED",
        }
    )
    assert options.include_headers
    assert not options.fail_on_data_loss
    assert options.isolation_level == READ_COMMITTED


def test_topics_are_trimmed_and_empty_ones_dropped() -> None:
    assert parse(subscribe=" a , b,, a").strategy == Subscribe(("a", "b"))


def test_partitions_and_patterns_are_read() -> None:
    assigned = ReadOptions.parse({**SERVERS, "assign": '{"a": [0, 2], "b": [1]}'}).strategy
    assert assigned == Assign(
        (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
    )
    pattern = ReadOptions.parse({**SERVERS, "subscribePattern": " fl.*s "}).strategy
    assert pattern == SubscribePattern("fl.*s")


def test_offsets_per_partition_are_read() -> None:
    options = parse(
        startingOffsets='{"flights": {"0": 23, "1": -2}}',
        endingOffsets='{"flights":{"0":50,"1":-1}}',
    )
    assert options.starting == PartitionOffsets(
        {TopicPartition("flights", 0): 23, TopicPartition("flights", 1): EARLIEST}
    )
    assert options.ending == PartitionOffsets(
        {TopicPartition("flights", 0): 50, TopicPartition("flights", 1): LATEST}
    )


def test_words_for_offsets_may_have_any_case_and_blanks() -> None:
    assert parse(startingOffsets=" Earliest ", endingOffsets=" LATEST").ending == SameOffset(LATEST)


def test_a_timestamp_for_all_beats_timestamps_beat_offsets() -> None:
    by_partition = '{"flights": {"0": 5}}'
    assert parse(
        startingTimestamp="7", startingOffsetsByTimestamp=by_partition, startingOffsets="latest"
    ).starting == SameTimestamp(7)
    assert parse(
        endingOffsetsByTimestamp=by_partition, endingOffsets="earliest"
    ).ending == PartitionTimestamps({TopicPartition("flights", 0): 5})


REFUSED = [
    ({}, "must be specified for Kafka source"),
    ({**MINIMAL, "assign": "{}"}, "Only one of the following options"),
    ({"subscribe": "t"}, "'kafka.bootstrap.servers' must be specified"),
    ({"subscribe": "t", "kafka.bootstrap.servers": " "}, "must be specified"),
    ({**SERVERS, "subscribe": " , "}, "No topics to subscribe"),
    ({**SERVERS, "subscribePattern": " "}, "Pattern to subscribe is empty"),
    ({**SERVERS, "subscribePattern": "("}, "not a regular expression"),
    ({**SERVERS, "assign": "flights"}, "No topicpartitions to assign"),
    ({**SERVERS, "assign": "{1}"}, 'Expected e.g. {"topicA":[0,1]'),
    ({**SERVERS, "assign": '{"a": 1}'}, 'Expected e.g. {"topicA":[0,1]'),
    ({**MINIMAL, "startingOffsets": "latest"}, "starting offset can't be latest for batch"),
    ({**MINIMAL, "endingOffsets": "earliest"}, "ending offset can't be earliest for batch"),
    (
        {**MINIMAL, "startingOffsets": '{"flights":{"3":-1}}'},
        "startingOffsets for flights-3 can't be latest",
    ),
    (
        {**MINIMAL, "endingOffsets": '{"flights":{"3":-2}}'},
        "endingOffsets for flights-3 can't be earliest",
    ),
    ({**MINIMAL, "startingOffsets": "first"}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
    ({**MINIMAL, "startingOffsets": '{"flights":{"0":"a"}}'}, "Expected e.g."),
    ({**MINIMAL, "startingOffsets": '{"flights":{"0":1.5}}'}, "Expected e.g."),
    ({**MINIMAL, "startingOffsets": '{"flights":{"0":true}}'}, "Expected e.g."),
    ({**MINIMAL, "startingOffsets": '["flights"]'}, "Expected e.g."),
    ({**MINIMAL, "startingOffsets": '{"flights":{"0":-3}}'}, "-3 for flights-0"),
    ({**MINIMAL, "startingOffsetsByTimestamp": '{"flights":{"0":-1}}'}, "-1 for flights-0"),
    ({**MINIMAL, "startingOffsetsByTimestamp": "now"}, '"topicA":{"0":123456789'),
    ({**MINIMAL, "startingTimestamp": "abc"}, "Expected a single long value, got abc"),
    ({**MINIMAL, "startingOffsetsByTimestampStrategy": "maybe"}, "'error' or 'latest'"),
    ({**MINIMAL, "minPartitions": "0"}, "minPartitions must be positive"),
    ({**MINIMAL, "minPartitions": "many"}, "minPartitions must be a number"),
    ({**MINIMAL, "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
    ({**MINIMAL, "failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
    ({**MINIMAL, "kafka.auto.offset.reset": "earliest"}, "'auto.offset.reset' is not supported"),
    ({**MINIMAL, "kafka.key.deserializer": "x"}, "'key.deserializer' is not supported"),
    ({**MINIMAL, "kafka.value.deserializer": "x"}, "'value.deserializer' is not supported"),
    ({**MINIMAL, "kafka.enable.auto.commit": "x"}, "'enable.auto.commit' is not supported"),
    ({**MINIMAL, "kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported"),
    ({**MINIMAL, "kafka.security.protocol": "KERBEROS"}, "security.protocol=KERBEROS: must be"),
    ({**MINIMAL, "kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism=: must be one of"),
    ({**MINIMAL, "kafka.isolation.level": "serializable"}, "kafka.isolation.level must be"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_the_connector_refuses_is_refused_with_its_words(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the words are checked below
        ReadOptions.parse(options)
    assert words in str(caught.value)


def test_how_to_reach_the_brokers_is_read_and_its_secrets_are_not_printed() -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" '
    options = parse(
        kafka__security__protocol="SASL_SSL",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__jaas__config=login + 'password="hush";',
        kafka__ssl__truststore__type="PEM",
        kafka__ssl__truststore__location="/etc/ca.pem",
    )
    assert options.security == Security(
        "SASL_SSL", "PLAIN", "ann", "hush", ssl_truststore_location="/etc/ca.pem"
    )
    assert "hush" not in repr(options)


def test_explicit_offsets_out_of_order_are_refused_before_anything_is_asked() -> None:
    with pytest.raises(
        ValueError, match=r"UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.* 9 .* 5"
    ):
        parse(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":5}}')
    parse(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":-1}}')
    parse(startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":5}}')


def test_explicit_offsets_of_different_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"MISMATCHED_TOPIC_PARTITIONS.*t-0.*t-1"):
        parse(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"1":15}}')


def test_names_that_nobody_knows_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_ineffective(
            {
                **MINIMAL,
                "startingOfsets": "earliest",
                "kafka.isolation.levle": "read_committed",
                "maxOffsetsPerTrigger": "5",
                "kafka.group.id": "g",
                "kafka.ssl.truststore.location": "x",
                "INCLUDEHEADERS": "true",
            }
        )
    assert caplog.messages == [
        "option 'startingOfsets' is not known and has no effect; did you mean 'startingOffsets'?",
        "option 'kafka.isolation.levle' is not known and has no effect; did you mean "
        "'kafka.isolation.level'?",
        "maxOffsetsPerTrigger option is ignored in batch queries",
    ]


def test_names_are_told_as_they_are_spelled_whatever_spark_makes_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_ineffective({"maxoffsetspertrigger": "5", "maxoffsetpertriger": "5"})
    assert caplog.messages == [
        "option 'maxoffsetpertriger' is not known and has no effect; did you mean "
        "'maxOffsetsPerTrigger'?",
        "maxOffsetsPerTrigger option is ignored in batch queries",
    ]


# ---- columns


def test_columns_are_those_of_the_connector() -> None:
    assert full_schema(include_headers=False).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    assert full_schema(include_headers=True)["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )


def test_a_schema_of_the_user_projects_columns_in_any_case_and_order() -> None:
    schema = StructType([StructField("OFFSET", LongType()), StructField("Value", BinaryType())])
    assert projected_columns(schema) == ["offset", "value"]
    assert projected_columns(full_schema(include_headers=True))[-1] == "headers"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (StructField("body", BinaryType()), "no column 'body'; the columns are: key binary"),
        (StructField("value", StringType()), "'value' is binary and nullable, not string; cast"),
        (StructField("value", BinaryType(), nullable=False), "not binary NOT NULL"),
    ],
)
def test_a_schema_that_asks_for_something_else_is_refused(field: StructField, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        projected_columns(StructType([field]))


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="names no column"):
        projected_columns(StructType([]))
