"""Avro through Spark: batches and streams, bare and in the wire format of registries."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.spark.tests.patience import patiently

pytestmark = pytest.mark.timeout(300)

NOW = 1_700_000_000_000
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": {"type": "enum", "name": "Carrier", "symbols": ["UA", "DL"]}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "left", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        },
        {
            "name": "plane",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Plane",
                    "fields": [
                        {"name": "seats", "type": "int"},
                        {"name": "weight", "type": "double"},
                    ],
                },
            ],
        },
    ],
}
# What fastavro reads value by value.
LEGS = {
    "type": "record",
    "name": "Legs",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "stops", "type": {"type": "array", "items": "string"}},
    ],
}
SCHEMA = (
    "offset BIGINT, plane STRUCT<weight: DOUBLE, seats: INT>, carrier STRING, id STRING, day DATE, "
    "left TIMESTAMP, price DECIMAL(8, 2)"
)


@pytest.fixture
def cluster(spark_bootstrap_servers: str) -> Iterator[Cluster]:
    with Cluster(spark_bootstrap_servers) as cluster:
        yield cluster


def encoded(schema: Any, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def flight(number: int) -> dict[str, Any]:
    return {
        "carrier": ("UA", "DL")[number % 2],
        "id": f"00000000-0000-0000-0000-{number:012d}",
        "day": number,
        "left": None if number % 3 == 0 else NOW + number,
        "price": Decimal(number).scaleb(-2),
        "plane": None if number % 5 == 0 else {"seats": number, "weight": number / 2},
    }


def expected(offset: int, number: int) -> tuple[Any, ...]:
    row = flight(number)
    plane, left = row["plane"], row["left"]
    return (
        offset,
        plane and (plane["weight"], plane["seats"]),
        row["carrier"],
        row["id"],
        date.fromordinal(date(1970, 1, 1).toordinal() + number),
        left and datetime.fromtimestamp(left // 1000).replace(microsecond=number * 1000),
        row["price"],
    )


def put(cluster: Cluster, topic: str, values: list[bytes | None]) -> None:
    batch = build_batch([Record(0, NOW, None, value) for value in values])
    produce(cluster, {TopicPartition(topic, 0): batch})


def test_a_batch_of_avro_is_decoded_into_the_users_schema(
    spark: SparkSession, spark_bootstrap_servers: str, cluster: Cluster
) -> None:
    create_topic(cluster, "avro-batch", partitions=1)
    good: list[bytes | None] = [encoded(FLIGHT, flight(number)) for number in range(500)]
    put(cluster, "avro-batch", [*good, None, b"\0", b"", *good[:1]])
    reader = (
        spark.read.format("asyncbroker")
        .option("kafka.bootstrap.servers", spark_bootstrap_servers)
        .option("subscribe", "avro-batch")
        .option("valueFormat", "avro")
        .option("valueSchema", json.dumps(FLIGHT))
    )
    rows = reader.option("onDecodeError", "drop").schema(SCHEMA).load().orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        *[expected(number, number) for number in range(500)],
        (500, *[None] * 6),
        expected(503, 0),
    ]
    whole = reader.option("onDecodeError", "null").schema(
        "value STRUCT<price: DECIMAL(8, 2)>, offset BIGINT, _corrupt_record STRING"
    )
    found = whole.load().where("offset >= 499").orderBy("offset").collect()
    assert [(row.value and row.value.price, row._corrupt_record) for row in found] == [
        (Decimal("4.99"), None),
        (None, None),
        (None, "\0"),
        (None, ""),
        (Decimal("0.00"), None),
    ]
    failing = reader.option("onDecodeError", "fail").schema("carrier STRING").load()
    with pytest.raises(PythonException, match="offset 501: the value is not what valueFormat=avro"):
        failing.collect()


def test_a_stream_of_avro_has_a_schema_for_each_id(
    spark: SparkSession, spark_bootstrap_servers: str, cluster: Cluster, tmp_path: Path
) -> None:
    create_topic(cluster, "avro-stream", partitions=1)
    legs = {"carrier": "HA", "stops": ["HNL", "SFO"]}
    values: list[bytes | None] = []
    for number in range(10):
        values.append(b"\0\0\0\0\1" + encoded(FLIGHT, flight(number)))
        values.append(b"\0\0\0\0\2" + encoded(LEGS, legs))
    put(cluster, "avro-stream", values)
    schemas = tmp_path / "schemas.json"
    schemas.write_text(json.dumps({"1": FLIGHT, "2": LEGS}))

    def run() -> None:
        query = (
            spark.readStream.format("asyncbroker")
            .option("kafka.bootstrap.servers", spark_bootstrap_servers)
            .option("subscribe", "avro-stream")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "7")
            .option("valueFormat", "confluent-avro")
            .option("valueSchemaFile", str(schemas))
            .schema("carrier STRING, stops ARRAY<STRING>, price DECIMAL(8, 2), offset BIGINT")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    patiently(run)
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        row
        for number in range(10)
        for row in (
            (flight(number)["carrier"], None, flight(number)["price"], 2 * number),
            ("HA", ["HNL", "SFO"], None, 2 * number + 1),
        )
    ]


def test_an_older_schemas_values_have_the_newest_ones_defaults(
    spark: SparkSession, spark_bootstrap_servers: str, cluster: Cluster
) -> None:
    create_topic(cluster, "avro-evolution", partitions=1)
    weight = {"type": "record", "name": "W", "fields": [{"name": "kg", "type": "double"}]}
    day = {"type": "int", "logicalType": "date"}
    id_field = {"name": "id", "type": "int"}
    older = {
        "type": "record",
        "name": "Trip",
        "fields": [id_field, {"name": "u", "type": ["int", weight, "boolean"]}],
    }
    newer = {
        "type": "record",
        "name": "Trip",
        "fields": [
            {"name": "number", "type": "long", "aliases": ["id"]},
            {"name": "u", "type": ["null", "string", "int", weight], "default": None},
            {"name": "class", "type": "string", "default": "economy"},
            {"name": "day", "type": day, "default": 3},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]},
        ],
    }
    olds = [encoded(older, {"id": n, "u": u}) for n, u in enumerate((5, {"kg": 1.5}, True))]
    last = {"number": 9, "u": "x", "class": "first", "day": 0, "tags": []}
    values = [b"\0\0\0\0\2" + encoded(newer, last)]
    values += [b"\0\0\0\0\1" + value for value in (*olds, olds[0][:1])]
    put(cluster, "avro-evolution", [*values, None])
    reader = (
        spark.read.format("asyncbroker")
        .option("kafka.bootstrap.servers", spark_bootstrap_servers)
        .option("subscribe", "avro-evolution")
        .option("valueFormat", "confluent-avro")
        .option("valueSchema", json.dumps({"1": older, "2": newer}))
        .schema(
            "offset BIGINT, number BIGINT, class STRING, day DATE, tags ARRAY<STRING>, "
            "u STRUCT<member_string: STRING, member_int: INT, member_w: STRUCT<kg: DOUBLE>>"
        )
    )
    fourth = date(1970, 1, 4)
    decoded: list[tuple[Any, ...]] = [
        (0, 9, "first", date(1970, 1, 1), [], ("x", None, None)),
        (1, 0, "economy", fourth, ["none"], (None, 5, None)),
        (2, 1, "economy", fourth, ["none"], (None, None, (1.5,))),
    ]
    rows = reader.option("onDecodeError", "null").load().orderBy("offset").collect()
    nothing = [(offset, *[None] * 5) for offset in (3, 4, 5)]
    assert [tuple(row) for row in rows] == [*decoded, *nothing]
    rows = reader.option("onDecodeError", "drop").load().orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [*decoded, nothing[2]]
    with pytest.raises(PythonException, match="offset 3: the value is not what valueFormat="):
        reader.option("onDecodeError", "fail").load().collect()
