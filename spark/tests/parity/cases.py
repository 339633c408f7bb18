"""What Spark's own Kafka connector and ours are both asked, by options: reads, streams, writes.

In the options `<many>` and its likes stand for the topics of `topics.py`; `<absent>` takes an
option out that all others have.
"""

from __future__ import annotations

import json

from asyncbroker.spark.tests.parity.topics import NOW

Options = dict[str, str]

# ---- batches: the same rows

AT = str(NOW + 2000)
BY_TIME = json.dumps({"<many>": {"0": NOW + 1000, "1": NOW + 2000, "2": 0}})

SAME_ROWS: dict[str, dict[str, str]] = {
    "defaults": {},
    "assign": {"assign": '{"<many>": [1, 0]}'},
    "assign a partition that there is not": {"assign": '{"<many>": [1, 77]}'},
    "subscribe to several, with blanks": {"subscribe": " <many> ,, <late>"},
    "subscribePattern finds in the middle": {"subscribePattern": "any-.*<tag>"},
    "subscribePattern without a match": {"subscribePattern": "nothing-like-it"},
    "keys in any case": {"SUBSCRIBE": "<late>", "startingoffsets": "EARLIEST"},
    "startingOffsets and endingOffsets": {
        "startingOffsets": '{"<many>": {"0": 4, "1": -2, "2": 0}}',
        "endingOffsets": '{"<many>": {"0": 9, "1": -1, "2": 0}}',
    },
    "words with blanks": {"startingOffsets": " Earliest ", "endingOffsets": "LATEST"},
    "an empty range": {
        "startingOffsets": '{"<many>": {"0": 4, "1": 5, "2": 0}}',
        "endingOffsets": '{"<many>": {"0": 4, "1": 5, "2": 0}}',
    },
    "startingTimestamp": {"startingTimestamp": AT, "assign": '{"<many>": [0, 1]}'},
    "startingTimestamp comes first": {
        "startingTimestamp": AT,
        "startingOffsetsByTimestamp": "{}",
        "startingOffsets": "latest",
        "assign": '{"<many>": [1]}',
    },
    "startingOffsetsByTimestamp before startingOffsets": {
        "startingOffsetsByTimestamp": BY_TIME,
        "startingOffsets": "latest",
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "no match with the strategy latest": {
        "startingTimestamp": str(NOW + 10**9),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "endingTimestamp": {"endingTimestamp": AT},
    "endingTimestamp beyond the end": {"endingTimestamp": str(NOW + 10**9)},
    "endingOffsetsByTimestamp": {"endingOffsetsByTimestamp": BY_TIME, "endingOffsets": "earliest"},
    "includeHeaders": {"includeHeaders": "true"},
    "the broker's time": {"subscribe": "<late>"},
    "a log that begins late": {"subscribe": "<short>"},
    "loss that is no error": {
        "subscribe": "<short>",
        "startingOffsets": '{"<short>": {"0": 5}}',
        "failOnDataLoss": "false",
    },
    "loss of everything that is no error": {
        "subscribe": "<short>",
        "startingOffsets": '{"<short>": {"0": 5}}',
        "endingOffsets": '{"<short>": {"0": 15}}',
        "failOnDataLoss": "false",
    },
    "groups and settings": {
        "kafka.group.id": "some",
        "groupIdPrefix": "other",
        "kafka.max.poll.records": "7",
        "kafka.isolation.level": "read_committed",
        "kafkaConsumer.pollTimeoutMs": "30000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "100",
    },
    "options of streams": {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "1"},
    "options that nobody knows": {"sbuscribe": "x", "kafka.nothing": "1"},
}

# ---- batches: the same refusals, with these words

REFUSALS: dict[str, tuple[dict[str, str], list[str]]] = {
    "no strategy": ({"subscribe": "<absent>"}, ["One of the following options must be specified"]),
    "two strategies": (
        {"subscribe": "<many>", "subscribePattern": "x"},
        ["Only one of the following options can be specified"],
    ),
    "no servers": ({"kafka.bootstrap.servers": "<absent>"}, ["kafka.bootstrap.servers"]),
    "an empty subscribe": ({"subscribe": " , "}, ["No topics to subscribe to"]),
    "an empty pattern": ({"subscribePattern": ""}, ["Pattern to subscribe is empty"]),
    "an assign that is no JSON": ({"assign": "t-0"}, ["No topicpartitions to assign"]),
    "a start at latest": (
        {"startingOffsets": "latest"},
        ["starting offset can't be latest for batch queries on Kafka"],
    ),
    "an end at earliest": (
        {"endingOffsets": "earliest"},
        ["ending offset can't be earliest for batch queries on Kafka"],
    ),
    "-1 in a start": (
        {"startingOffsets": '{"<many>": {"0": -1, "1": -2, "2": -2}}'},
        ["<many>-0 can't be latest for batch queries on Kafka"],
    ),
    "-2 in an end": (
        {"endingOffsets": '{"<many>": {"0": -2, "1": -1, "2": -1}}'},
        ["<many>-0 can't be earliest for batch queries on Kafka"],
    ),
    "a partition too few": (
        {"startingOffsets": '{"<many>": {"0": 1}}'},
        ["don't match", "<many>-0", "<many>-2"],
    ),
    "a partition too many": (
        {"endingOffsets": '{"<many>": {"0": 1, "1": 1, "2": 0, "3": 1}}'},
        ["don't match", "<many>-3"],
    ),
    "offsets that are no JSON": ({"startingOffsets": "{x"}, ['{"topicA":{"0":23,"1":-1}', "{x"]),
    "an end before the start": (
        {
            "startingOffsets": '{"<many>": {"0": 4, "1": 0, "2": 0}}',
            "endingOffsets": '{"<many>": {"0": 3, "1": 0, "2": 0}}',
        },
        ["start offset 4 is greater than the end offset 3 for topic <many> partition 0"],
    ),
    "a start beyond the log": (
        {"startingOffsets": '{"<many>": {"0": 400, "1": 0, "2": 0}}'},
        ["start offset 400 is greater than the resolved end offset 15 for topic <many>"],
    ),
    "a timestamp that is no number": (
        {"startingTimestamp": "abc"},
        ["Expected a single long value"],
    ),
    "no match of a timestamp": (
        {"startingTimestamp": str(NOW + 10**9), "assign": '{"<many>": [0]}'},
        ["No offset matched from request of topic-partition <many>-0", str(NOW + 10**9)],
    ),
    "timestamps for other partitions": (
        {"startingOffsetsByTimestamp": '{"<many>": {"0": 1}}'},
        ["don't match", "<many>-0"],
    ),
    "a flag that is none": ({"includeHeaders": "maybe"}, ["maybe"]),
    "minPartitions of 0": ({"minPartitions": "0"}, ["minPartitions must be positive"]),
    "data that was lost": (
        {"subscribe": "<short>", "startingOffsets": '{"<short>": {"0": 5}}'},
        ["Some data may have been lost", "failOnDataLoss"],
    ),
    "an unknown topic": ({"subscribe": "no-such"}, ["nknown"]),
    **{
        f"kafka.{name}": ({f"kafka.{name}": "x"}, [name, "not supported"])
        for name in ("key.deserializer", "value.deserializer", "enable.auto.commit")
    },
    "kafka.interceptor.classes": ({"kafka.interceptor.classes": "x"}, ["interceptor.classes"]),
    "kafka.auto.offset.reset": (
        {"kafka.auto.offset.reset": "latest"},
        ["auto.offset.reset", "Instead set the source option"],
    ),
}

# ---- batches: as many tasks

SPLITS: list[dict[str, str]] = [
    {"minPartitions": "4"},
    {"minPartitions": "7"},
    {"minPartitions": "8", "maxRecordsPerPartition": "4"},
    {
        "maxRecordsPerPartition": "4",
        "startingOffsets": '{"<many>": {"0": 0, "1": 0, "2": 0}}',
        "endingOffsets": '{"<many>": {"0": 15, "1": 5, "2": 0}}',
    },
]

# ---- streams: the same rows in the same portions, from the first start to the end of the topic

STREAMS: dict[str, Options] = {
    "earliest": {"startingOffsets": "earliest"},
    "latest by default": {},
    "startingOffsets": {"startingOffsets": '{"<many>": {"0": 4, "1": -1, "2": -2}}'},
    "startingTimestamp": {
        "startingTimestamp": AT,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "maxOffsetsPerTrigger": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"},
    "a partition that is small beside others": {
        "subscribe": "<many>,<short>",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "3",
    },
    "subscribePattern": {"subscribePattern": "any-.*<tag>", "startingOffsets": "earliest"},
    "assign": {"assign": '{"<many>": [1, 0]}', "startingOffsets": "earliest"},
    "loss that is no error": {
        "subscribe": "<short>",
        "startingOffsets": '{"<short>": {"0": 5}}',
        "failOnDataLoss": "false",
    },
}

# Of which each batch is split.
STREAM_SPLITS: list[Options] = [
    {"startingOffsets": "earliest", "minPartitions": "7"},
    {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "14",
        "minPartitions": "5",
        "maxRecordsPerPartition": "4",
    },
]

STREAM_REFUSALS: dict[str, tuple[Options, list[str]]] = {
    "an end": ({"endingOffsets": "latest"}, ["ending offset not valid in streaming queries"]),
    "a partition too few": (
        {"startingOffsets": '{"<many>": {"0": 1}}'},
        ["you must specify all TopicPartitions"],
    ),
    "a smallest portion above the largest": (
        {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
        ["is higher than the maxOffsetsPerTrigger(5)"],
    ),
    "data that was lost": (
        {"subscribe": "<short>", "startingOffsets": '{"<short>": {"0": 5}}'},
        ["Some data may have been lost"],
    ),
    "no match of a timestamp": (
        {"startingTimestamp": str(NOW + 10**9), "assign": '{"<many>": [0]}'},
        ["No offset matched from request of topic-partition <many>-0"],
    ),
    "an unknown topic": ({"subscribe": "no-such"}, ["nknown"]),
}

# ---- writes: the same records in the same partitions, of `spark.range(40)` by these expressions

WRITES: dict[str, tuple[list[str], Options]] = {
    "keys of text choose partitions": (["concat('key-', id) AS key", "string(id) AS value"], {}),
    "keys of bytes choose partitions": (
        ["CAST(string(id * 7919) AS BINARY) AS key", "CAST(NULL AS BINARY) AS value"],
        {},
    ),
    "the column partition beats the key": (
        ["'k' AS key", "string(id) AS value", "CAST(id % 3 AS INT) AS partition"],
        {},
    ),
    "headers": (
        [
            "string(id) AS key",
            "'v' AS value",
            "IF(id % 3 = 0, NULL, array(named_struct('key', 'a', 'value', CAST('1' AS BINARY)), "
            "named_struct('key', 'a', 'value', CAST(NULL AS BINARY)))) AS headers",
        ],
        {"includeHeaders": "true"},
    ),
    "the option topic beats the column": (
        ["string(id) AS key", "'v' AS value", "'not-this-one' AS topic"],
        {},
    ),
    "the column topic": (
        ["string(id) AS key", "'v' AS value", "'<topic>' AS topic", "id AS ignored"],
        {"topic": "<absent>"},
    ),
    "gzip": (["string(id) AS key", "'v' AS value"], {"kafka.compression.type": "gzip"}),
    "one acknowledgement": (
        ["string(id) AS key", "'v' AS value"],
        {"kafka.acks": "1", "kafka.enable.idempotence": "false"},
    ),
}

WRITE_REFUSALS: dict[str, tuple[list[str], Options, list[str]]] = {
    "no topic": (
        ["string(id) AS value"],
        {"topic": "<absent>"},
        ["topic option required when no 'topic' attribute is present"],
    ),
    "a null topic": (
        ["string(id) AS value", "IF(id = 2, NULL, '<topic>') AS topic"],
        {"topic": "<absent>"},
        ["sent to the producer contains a null topic"],
    ),
    "no value": (["string(id) AS key"], {}, ["Required attribute 'value' not found"]),
    "a value that is a number": (["id AS value"], {}, ["value attribute unsupported type"]),
    "a key that is a number": (
        ["id AS key", "'v' AS value"],
        {},
        ["key attribute unsupported type"],
    ),
    "a partition that is text": (
        ["'v' AS value", "'0' AS partition"],
        {},
        ["partition attribute unsupported type"],
    ),
    "headers that are text": (
        ["'v' AS value", "'h' AS headers"],
        {},
        ["headers attribute unsupported type"],
    ),
    "no servers": (
        ["'v' AS value"],
        {"kafka.bootstrap.servers": "<absent>"},
        ["bootstrap.servers"],
    ),
    "kafka.value.serializer": (
        ["'v' AS value"],
        {"kafka.value.serializer": "x"},
        ["value.serializer", "not supported"],
    ),
}
