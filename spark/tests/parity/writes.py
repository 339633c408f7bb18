"""One write by either connector, and what is in the topic then."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.topics import create_topic
from asyncbroker.spark.tests.parity.batches import rows_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 5
ROWS = 40


def write(
    spark: SparkSession, form: str, servers: str, columns: Sequence[str], given: dict[str, str]
) -> list[Any] | str:
    """Keys, values, partitions and headers of all records, or why there are none."""
    topic = f"written-{uuid.uuid4().hex[:12]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=PARTITIONS)
    options = {"kafka.bootstrap.servers": servers, "topic": topic} | given
    options = {name: value for name, value in options.items() if value != "<absent>"}
    texts = [column.replace("<topic>", topic) for column in columns]
    rows = spark.range(ROWS).selectExpr(*texts)
    try:
        rows.write.format(form).options(**options).mode("append").save()
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    reading = {"subscribe": topic, "kafka.bootstrap.servers": servers, "includeHeaders": "true"}
    found = rows_here(reading)
    assert isinstance(found, list), found
    return sorted(((row[0], row[1], row[3], row[7]) for row in found), key=repr)
