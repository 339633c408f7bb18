"""Spark and `kill -9` of the broker while rows are written."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.partitions import latest_offsets
from asyncbroker.client.reader import Reader
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import batches, records_of
from asyncbroker.spark.write_options import WriteOptions
from asyncbroker.spark.writer import TaskWriter
from compat_tests.conftest import BrokerProcess

ROWS = 30_000
ROWS_PER_BATCH = 1000
PARTITIONS = 3


def all_values(servers: str, topic: str) -> list[int]:
    """Every record of a topic, as a number."""
    found = []
    with Cluster(servers) as cluster:
        ends = latest_offsets(cluster, cluster.partitions_of(topic))
        with Reader(cluster, dict.fromkeys(ends, 0), end_offsets=ends) as reader:
            while not reader.is_done:
                for fetched in reader.poll():
                    for header, batch in batches(fetched.records):
                        found += [int(r.value or b"") for r in records_of(batch, header)]
    return found


@pytest.mark.parametrize("kills_at", [(0.02,), (0.3, 0.6, 0.9)], ids=["early", "again and again"])
def test_a_task_writes_each_row_once_across_kills_of_the_broker(
    own_broker: BrokerProcess, kills_at: tuple[float, ...]
) -> None:
    with Cluster(own_broker.bootstrap_servers) as cluster:
        create_topic(cluster, "rows", partitions=PARTITIONS)
    kill_at = [int(part * ROWS) // ROWS_PER_BATCH * ROWS_PER_BATCH for part in kills_at]
    restarts: list[threading.Thread] = []
    # Not sent, but it makes rows so large that few of them are taken together.
    padding = pa.array([bytes(4000)] * ROWS_PER_BATCH)

    def restart() -> None:
        own_broker.kill()
        own_broker.start()

    def rows() -> Iterator[pa.RecordBatch]:
        for first in range(0, ROWS, ROWS_PER_BATCH):
            if first in kill_at:
                for earlier in restarts:
                    earlier.join()
                restarts.append(threading.Thread(target=restart))
                restarts[-1].start()
            values = [b"%d" % number for number in range(first, first + ROWS_PER_BATCH)]
            keys = [None if number % 2 else value for number, value in enumerate(values)]
            yield pa.RecordBatch.from_pydict(
                {"key": pa.array(keys, pa.binary()), "value": pa.array(values), "other": padding}
            )

    options = WriteOptions.parse(
        {
            "kafka.bootstrap.servers": own_broker.bootstrap_servers,
            "topic": "rows",
            # Many requests, so that some are under way at any moment.
            "kafka.batch.size": "2000",
            "kafka.buffer.memory": "50000",
        }
    )
    schema = StructType().add("key", "binary").add("value", "binary").add("other", "binary")
    written = TaskWriter(options, schema).write(rows())
    for thread in restarts:
        thread.join()
    assert len(restarts) == len(kills_at)
    assert written.row_count == ROWS
    assert sorted(all_values(own_broker.bootstrap_servers, "rows")) == list(range(ROWS))
