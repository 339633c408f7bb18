"""Spark and `kill -9`: of the broker while rows are written, of the driver while a stream runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.partitions import latest_offsets
from asyncbroker.client.reader import Fetched, Reader
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import batches, records_of
from asyncbroker.spark.fetcher import fetch, open_cluster
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import OffsetRange
from asyncbroker.spark.reader import BatchReader
from asyncbroker.spark.write_options import WriteOptions
from asyncbroker.spark.writer import TaskWriter
from compat_tests.conftest import BrokerProcess

ROWS = 30_000
ROWS_PER_BATCH = 1000
PARTITIONS = 3

DRIVER = Path(__file__).parent / "spark_stream_driver.py"


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


def test_a_task_reads_each_row_once_across_kills_of_the_broker(own_broker: BrokerProcess) -> None:
    with Cluster(own_broker.bootstrap_servers) as cluster:
        create_topic(cluster, "rows", partitions=1)
    given = {
        "kafka.bootstrap.servers": own_broker.bootstrap_servers,
        "kafka.batch.size": "10000",
        "kafka.max.partition.fetch.bytes": "20000",
    }
    values = pa.array([b"%d" % number for number in range(ROWS)])
    schema = StructType().add("value", "binary")
    write = TaskWriter(WriteOptions.parse(given | {"topic": "rows"}), schema)
    write.write(iter([pa.RecordBatch.from_pydict({"value": values})]))
    options = ReadOptions.parse(given | {"subscribe": "rows", "maxRecordsPerPartition": "0"})
    reader = BatchReader(options, schema)
    (partition,) = reader.partitions()
    own_broker.kill()
    own_broker.start()
    with fetching(options, partition.value) as responses:
        found = []
        for number, fetched in enumerate(responses):
            for header, batch in batches(fetched.records):
                found += [int(record.value or b"") for record in records_of(batch, header)]
            if number in (1, 5, 9):
                own_broker.kill()
                own_broker.start()
        assert number > 12
    assert found == list(range(ROWS))


def test_tasks_that_begin_while_the_broker_is_away_wait_for_it(own_broker: BrokerProcess) -> None:
    servers = with_rows(own_broker)
    given = {"kafka.bootstrap.servers": servers}
    schema = StructType().add("value", "binary")
    options = ReadOptions.parse(given | {"subscribe": "rows"})
    reader = BatchReader(options, schema)
    ranges = reader.partitions()
    write_task = TaskWriter(WriteOptions.parse(given | {"topic": "rows"}), schema)
    values = pa.RecordBatch.from_pydict({"value": pa.array([b"4000", b"4001"])})

    def beginning_without_a_broker(task: Callable[[], Any]) -> Any:
        own_broker.kill()
        restart = threading.Thread(target=own_broker.start)
        restart.start()
        try:
            return task()
        finally:
            restart.join()

    found = beginning_without_a_broker(lambda: list(reader.read(ranges[0])))
    assert sum(len(rows) for rows in found)
    assert beginning_without_a_broker(lambda: write_task.write(iter([values]))).row_count == 2
    assert sorted(all_values(servers, "rows")) == [*range(3000), 4000, 4001]


@contextmanager
def fetching(options: ReadOptions, wanted: OffsetRange) -> Iterator[Iterator[Fetched]]:
    """What a task fetches of a range, response by response."""
    with open_cluster(options) as cluster:
        yield fetch(options, cluster, wanted)


class Driver:
    """A Spark driver in a process of its own, which streams a topic into a folder of files."""

    def __init__(self, servers: str, folder: Path, rows_until: int | None = None) -> None:
        command = [sys.executable, str(DRIVER), servers, str(folder)]
        if rows_until is not None:
            command.append(str(rows_until))
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            text=True,
            # With the JVM and its workers, to be killed together.
            start_new_session=True,
        )

    def wait_for_batch(self, number: int) -> None:
        """Waits until so many batches are written."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.split() == ["batch", str(number)]:
                return
        raise AssertionError("the driver has ended")

    def kill(self) -> None:
        """Ends it and all that it has started, if it has not ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def streaming(servers: str, folder: Path, rows_until: int | None = None) -> Iterator[Driver]:
    """A driver, which is killed at the end if it goes on until then."""
    driver = Driver(servers, folder, rows_until)
    try:
        yield driver
    finally:
        driver.kill()


@pytest.mark.timeout(600)
def test_a_stream_loses_and_doubles_nothing_across_kills_of_its_driver(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    servers = with_rows(own_broker)
    with streaming(servers, tmp_path) as driver:
        driver.wait_for_batch(1)
    write(servers, 3000, 4000)
    with streaming(servers, tmp_path) as driver:
        assert driver.process.wait(300) == 0
    assert saved(tmp_path / "sink") == list(range(4000))


@pytest.mark.timeout(600)
def test_a_running_stream_goes_on_across_kills_of_the_broker(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    servers = with_rows(own_broker)
    with streaming(servers, tmp_path, rows_until=4000) as driver:
        # In the middle of what there is, and when there is little left but to ask what is new.
        for batch in (1, 5):
            driver.wait_for_batch(batch)
            own_broker.kill()
            own_broker.start()
        write(servers, 3000, 3500)
        own_broker.kill()
        own_broker.start()
        write(servers, 3500, 4000)
        assert driver.process.wait(300) == 0
    assert saved(tmp_path / "sink") == list(range(4000))


def with_rows(broker: BrokerProcess) -> str:
    """Makes the topic of the stream, with its first 3000 numbers; where the broker is."""
    servers = broker.bootstrap_servers
    with Cluster(servers) as cluster:
        create_topic(cluster, "rows", partitions=PARTITIONS)
    write(servers, 0, 3000)
    return servers


def write(servers: str, first: int, last: int) -> None:
    """Writes numbers into the topic of the stream, with `acks=all`."""
    options = WriteOptions.parse({"kafka.bootstrap.servers": servers, "topic": "rows"})
    values = pa.array([b"%d" % number for number in range(first, last)])
    writer = TaskWriter(options, StructType().add("value", "binary"))
    writer.write(iter([pa.RecordBatch.from_pydict({"value": values})]))


def saved(sink: Path) -> list[int]:
    """The numbers that the driver has written, each as often as it did."""
    paths = sink.glob("batch-*.txt")
    return sorted(int(line) for path in paths for line in path.read_text().splitlines())
