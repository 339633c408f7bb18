"""Retention, compaction and DeleteRecords as clients and Kafka's tools see them, by the wall clock.

Records carry times of their own, so that segments roll (`segment.ms`) and grow old at once; the
broker looks every fifth of a second. Against Apache Kafka with `BOOTSTRAP_SERVERS`, which has to
be started with the settings below, and with `log.initial.task.delay.ms=100`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.topics import create_topic
from compat_tests.conftest import SETTINGS, BrokerProcess, running
from compat_tests.java import needs_jars, run_tool

Fresh = Callable[[str], str]
Record = tuple[int, bytes | None, bytes | None]
Log = list[tuple[int, bytes, bytes | None]]

pytestmark = pytest.mark.timeout(180)

SOON = (
    "log.retention.check.interval.ms=200",
    "log.cleaner.backoff.ms=200",
    "log.cleaner.min.cleanable.ratio=0.01",
)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SECONDS_MAX = 60
# Long enough for the broker to have looked a few times, and done nothing.
LOOKS_SECONDS = 1.5
VALUE = bytes(200)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that looks often."""
    if other := os.environ.get("BOOTSTRAP_SERVERS"):
        yield other
        return
    data = tmp_path_factory.mktemp("retention")
    with running(BrokerProcess(data, (*SETTINGS, *SOON))) as broker:
        yield broker.bootstrap_servers
        assert broker.is_running(), "the broker died during the tests"


def create(servers: str, topic: str, **configs: str) -> None:
    """A topic of one partition; `retention_ms="1"` is retention.ms=1."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=1, replication_factor=1, configs=settings)


def produce(servers: str, topic: str, records: Sequence[Record]) -> None:
    """Records of (age in ms, key, value), each in a batch of its own."""
    producer: Any = Producer(
        {"bootstrap.servers": servers, "batch.num.messages": 1, "linger.ms": 0}
    )
    now_ms = int(time.time() * 1000)
    for age_ms, key, value in records:
        producer.produce(topic, value, key, partition=0, timestamp=now_ms - age_ms)
    assert producer.flush(30) == 0


def watermarks(servers: str, topic: str) -> tuple[int, int]:
    consumer: Any = Consumer({"bootstrap.servers": servers, "group.id": "any"})
    found = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
    consumer.close()
    return int(found[0]), int(found[1])


def read(servers: str, topic: str) -> Log:
    """All there is, by offset, key and value."""
    consumer: Any = Consumer(
        {"bootstrap.servers": servers, "group.id": "any", "enable.partition.eof": True}
    )
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
    consumer.assign([TopicPartition(topic, 0, low)])
    found: Log = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.offset(), message.key(), message.value()))
    assert message is not None
    consumer.close()
    return found


def offsets(servers: str, topic: str) -> list[int]:
    return [offset for offset, _, _ in read(servers, topic)]


def has_lost_its_first(servers: str, topic: str) -> bool:
    return offsets(servers, topic)[0] > 0


def wait_for(look: Callable[[], Any], wanted: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, f"{found}, not {wanted}"
        time.sleep(0.1)


def test_segments_older_than_retention_ms_go_and_the_next_one_stays(
    servers: str, fresh: Fresh
) -> None:
    topic = fresh("aging")
    create(servers, topic, retention_ms=str(HOUR_MS), segment_ms=str(MINUTE_MS))
    ages = [3 * HOUR_MS, 3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2, 0]
    produce(servers, topic, [(age, None, VALUE) for age in ages])
    wait_for(lambda: watermarks(servers, topic), (3, 5))
    time.sleep(LOOKS_SECONDS)
    assert offsets(servers, topic) == [3, 4]


def test_the_newest_segment_goes_only_by_being_rolled_and_offsets_go_on(
    servers: str, fresh: Fresh
) -> None:
    topic = fresh("aged")
    create(servers, topic, retention_ms=str(HOUR_MS))
    produce(servers, topic, [(2 * HOUR_MS, None, VALUE)] * 3)
    wait_for(lambda: watermarks(servers, topic), (3, 3))
    produce(servers, topic, [(0, None, VALUE)])
    assert offsets(servers, topic) == [3]
    # Of a segment that has a young record nothing goes, however old the others are.
    produce(servers, topic, [(2 * HOUR_MS, None, VALUE)])
    time.sleep(LOOKS_SECONDS)
    assert offsets(servers, topic) == [3, 4]


def test_retention_bytes_keeps_at_least_so_many_and_the_newest_segment(
    servers: str, fresh: Fresh
) -> None:
    topic, least = fresh("sized"), fresh("least")
    create(servers, topic, retention_bytes="25000", segment_ms=str(MINUTE_MS))
    create(servers, least, retention_bytes="1", segment_ms=str(MINUTE_MS))
    # Six segments of a little more than 10 KB.
    records = [(HOUR_MS - at * 2 * MINUTE_MS, None, bytes(10_000)) for at in range(6)]
    for name in (topic, least):
        produce(servers, name, records)
    wait_for(lambda: watermarks(servers, topic), (3, 6))
    wait_for(lambda: watermarks(servers, least), (5, 6))
    time.sleep(LOOKS_SECONDS)
    assert watermarks(servers, topic) == (3, 6)
    assert offsets(servers, least) == [5]


def test_a_compacted_topic_with_retention_loses_old_segments_too(
    servers: str, fresh: Fresh
) -> None:
    topic = fresh("both")
    policy = {"cleanup_policy": "compact,delete", "retention_ms": str(HOUR_MS)}
    create(servers, topic, segment_ms=str(MINUTE_MS), **policy)
    produce(servers, topic, [(2 * HOUR_MS, b"old-%d" % at, VALUE) for at in range(3)])
    wait_for(lambda: watermarks(servers, topic), (3, 3))
    young = [(HOUR_MS // 2, b"key-%d" % (at % 2), VALUE) for at in range(6)]
    produce(servers, topic, [*young, (0, b"end", VALUE)])
    wait_for(lambda: offsets(servers, topic), [7, 8, 9])
    assert watermarks(servers, topic) == (3, 10)


def test_records_younger_than_the_compaction_lag_are_not_touched(
    servers: str, fresh: Fresh
) -> None:
    topic = fresh("lagging")
    policy = {"cleanup_policy": "compact", "min_compaction_lag_ms": str(HOUR_MS)}
    create(servers, topic, segment_ms=str(MINUTE_MS), **policy)
    old = [(2 * HOUR_MS, b"key-%d" % (at % 2), VALUE) for at in range(6)]
    young = [(HOUR_MS // 2, b"key-0", VALUE)] * 3
    produce(servers, topic, [*old, *young, (0, b"end", VALUE)])
    wait_for(lambda: offsets(servers, topic), [4, 5, 6, 7, 8, 9])
    time.sleep(LOOKS_SECONDS)
    assert offsets(servers, topic) == [4, 5, 6, 7, 8, 9]


def test_tombstones_stay_for_delete_retention_ms_and_go_then(servers: str, fresh: Fresh) -> None:
    policy = {"cleanup_policy": "compact", "segment_ms": str(MINUTE_MS)}
    kept, gone = fresh("kept"), fresh("gone")
    create(servers, kept, **policy)
    create(servers, gone, delete_retention_ms="1", **policy)
    for topic in (kept, gone):
        produce(
            servers,
            topic,
            [(HOUR_MS, b"a", b"1"), (HOUR_MS, b"a", None), (HOUR_MS, b"b", b"2"), (0, b"c", b"3")],
        )
    for topic in (kept, gone):
        wait_for(partial(has_lost_its_first, servers, topic), True)
        # The first pass has marked it; the next one, which something new brings about, drops it.
        produce(servers, topic, [(-2 * MINUTE_MS, b"d", b"4")])
    wait_for(lambda: offsets(servers, gone), [2, 3, 4])
    time.sleep(LOOKS_SECONDS)
    assert read(servers, kept)[:2] == [(1, b"a", None), (2, b"b", b"2")]


@needs_jars
def test_kafkas_delete_records_tool_moves_the_beginning(
    servers: str, fresh: Fresh, tmp_path: Path
) -> None:
    topic = fresh("cut")
    create(servers, topic)
    produce(servers, topic, [(0, None, VALUE)] * 10)
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted))
    told = run_tool(
        "DeleteRecordsCommand",
        *("--bootstrap-server", servers),
        *("--offset-json-file", str(tmp_path / "offsets.json")),
    )
    assert "low_watermark: 4" in told
    assert watermarks(servers, topic) == (4, 10)
    assert offsets(servers, topic) == list(range(4, 10))


@needs_jars
def test_kafkas_log_dirs_tool_tells_the_size_of_each_partition(servers: str, fresh: Fresh) -> None:
    topic = fresh("described")
    create(servers, topic)
    # A batch of 61 bytes with one record, of which 9 are not its value.
    produce(servers, topic, [(0, None, VALUE)] * 3)
    told = run_tool(
        "LogDirsCommand", *("--bootstrap-server", servers, "--describe", "--topic-list", topic)
    )
    described = json.loads(told.split("\n")[-2])
    assert described["version"] == 1
    (broker,) = described["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    (partition,) = directory["partitions"]
    assert partition.pop("size") == 3 * (61 + 9 + len(VALUE))
    assert partition == {"partition": f"{topic}-0", "offsetLag": 0, "isFuture": False}
