"""How fast a log is compacted, by asyncbroker's cleaner and by Apache Kafka's.

Both get the same batches: Kafka over the network, into a topic whose compaction lag holds its
cleaner off until all is there; ours in files written by the log itself. MB/s is what Kafka prints
of itself: the bytes of the log, once, over the time of both passes. Ours is one thread of a broker
that does nothing else; Kafka's is one cleaner thread after the same topic was compacted once
before, so that its code is compiled.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from brokers import Target, apache_kafka

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.client.topics import (
    ConfigOperation,
    ResourceType,
    alter_configs,
    create_topic,
)
from asyncbroker.log.cleaner import Cleaning, Replacement
from asyncbroker.log.cleaner_plan import plan_cleaning
from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import RealFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.incremental_alter_configs import IncrementalAlterableConfig
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from asyncbroker.protocol.records import Compression, Record, build_batch, read_header

SEGMENT_BYTES = 16 << 20
KEY_BYTES_MAX = int((128 << 20) * 0.9)
CLEAN_SECONDS_MAX = 600
HELD_MS = 1 << 61
LINE = re.compile(r"([\d.,]+) MB of log processed in ([\d.,]+) seconds")


@dataclass(frozen=True)
class Workload:
    """Batches of so many records, with values of so many bytes, of so many keys."""

    name: str
    records: int
    value_bytes: int
    keys: int
    codec: Compression = Compression.NONE


WORKLOADS = (
    Workload("batches-100", 100, 100, 100_000),
    Workload("single", 1, 100, 100_000),
    Workload("large-values", 100, 1000, 100_000),
    Workload("lz4", 100, 100, 100_000, Compression.LZ4),
)


def batches_of(workload: Workload, size: int) -> Iterator[bytearray]:
    """The same batches each time, `size` bytes of them."""
    chance = random.Random(workload.name)
    values = [
        chance.randbytes(workload.value_bytes // 2) + bytes(workload.value_bytes // 2)
        for _ in range(64)
    ]
    now_ms = int(time.time() * 1000) - 3_600_000
    while size > 0:
        records = [
            Record(0, now_ms, b"user-%08d" % chance.randrange(workload.keys), chance.choice(values))
            for _ in range(workload.records)
        ]
        batch = build_batch(records, compression=workload.codec)
        size -= len(batch)
        yield batch


def clean_ours(workload: Workload, size: int, directory: Path) -> float:
    """MB/s."""
    now_ms = int(time.time() * 1000)
    config = LogConfig(segment_bytes=SEGMENT_BYTES, is_compacted=True)
    log = PartitionLog.open(
        RealFiles(),
        str(directory / workload.name),
        topic_id=bytes(16),
        config=config,
        leader_epoch=0,
        is_clean=True,
        now_ms=now_ms,
    )
    for batch in batches_of(workload, size):
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=now_ms)
    log.flush()
    began = time.perf_counter()
    cleaning = Cleaning(
        log, plan_cleaning(log, None, log.end_offset, now_ms), now_ms, KEY_BYTES_MAX
    )
    for step in cleaning.steps():
        if isinstance(step, Replacement):
            step.is_shown = log.replace_segments(step.replaced, step.cleaned)
    seconds = time.perf_counter() - began
    log.close()
    return cleaning.stats.read_bytes / 1e6 / seconds


def clean_kafkas(workload: Workload, size: int, kafka: Target, log_path: Path) -> float:
    """MB/s, of the second compaction."""
    with Cluster(kafka.address) as cluster:
        create_topic(
            cluster,
            workload.name,
            partitions=1,
            replication_factor=1,
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(SEGMENT_BYTES),
                "min.cleanable.dirty.ratio": "0.01",
                "min.compaction.lag.ms": str(HELD_MS),
            },
        )
        speed = 0.0
        for _ in range(2):
            produce(workload, size, kafka)
            known = log_path.read_text().count(f"cleaned log {workload.name}-0")
            hold_off(cluster, workload, 0)
            speed = wait_for_line(workload, known, log_path)
            hold_off(cluster, workload, HELD_MS)
    return speed


def hold_off(cluster: Cluster, workload: Workload, lag_ms: int) -> None:
    change = IncrementalAlterableConfig("min.compaction.lag.ms", ConfigOperation.SET, str(lag_ms))
    alter_configs(cluster, ResourceType.TOPIC, workload.name, [change])


def produce(workload: Workload, size: int, kafka: Target) -> None:
    address = Address(kafka.host, kafka.port)
    connection = Connection.open(address, client_id="bench", timeout_s=30)
    batches = batches_of(workload, size)
    first = next(batches)
    send(connection, workload, first)
    # The topic was made this moment.
    while code := receive(connection):
        if code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise RuntimeError(f"Kafka answered a Produce with error {code}")
        time.sleep(0.1)
        send(connection, workload, first)
    waiting = 0
    for batch in batches:
        send(connection, workload, batch)
        waiting += 1
        if waiting == 50:
            receive_all(connection, waiting)
            waiting = 0
    receive_all(connection, waiting)
    connection.close()


def send(connection: Connection, workload: Workload, batch: bytearray) -> None:
    data = [TopicProduceData(workload.name, [PartitionProduceData(0, batch)])]
    connection.send(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), Deadline(30))


def receive(connection: Connection) -> int:
    """The error code of one batch."""
    response = connection.receive(ProduceResponse, Deadline(30))
    return response.responses[0].partition_responses[0].error_code


def receive_all(connection: Connection, count: int) -> None:
    for _ in range(count):
        if code := receive(connection):
            raise RuntimeError(f"Kafka answered a Produce with error {code}")


def wait_for_line(workload: Workload, known: int, log_path: Path) -> float:
    """What Kafka's cleaner says of the compaction after `known` others."""
    deadline = time.monotonic() + CLEAN_SECONDS_MAX
    while time.monotonic() < deadline:
        _, *reports = log_path.read_text().split(f"cleaned log {workload.name}-0")
        if len(reports) > known and (found := LINE.search(reports[known])) is not None:
            megabytes, seconds = (float(number.replace(",", "")) for number in found.groups())
            return megabytes * 1.048576 / seconds
        time.sleep(0.5)
    raise RuntimeError(f"Kafka's cleaner said nothing in {CLEAN_SECONDS_MAX} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--only", choices=[workload.name for workload in WORKLOADS])
    parser.add_argument("--no-kafka", action="store_true")
    options = parser.parse_args()
    size = options.megabytes * 1_000_000
    workloads = [each for each in WORKLOADS if options.only in (None, each.name)]
    classpath = os.environ.get("ASYNCBROKER_KAFKA_CLASSPATH")
    theirs: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if classpath and not options.no_kafka:
            log_path = directory / "kafka.log"
            # log4j writes to standard output, from this level on.
            os.environ["JAVA_TOOL_OPTIONS"] = "-Dlog4j2.level=INFO"
            settings = ("log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=1000")
            words = Path(classpath).read_text().strip()
            with apache_kafka(directory / "kafka", words, settings, log_path) as kafka:
                for each in workloads:
                    theirs[each.name] = clean_kafkas(each, size, kafka, log_path)
        print(f"{'MB/s':14}{'asyncbroker':>14}{'Apache Kafka':>14}")
        for each in workloads:
            ours = clean_ours(each, size, directory)
            other = f"{theirs[each.name]:14.1f}" if each.name in theirs else f"{'-':>14}"
            print(f"{each.name:14}{ours:14.1f}{other}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
