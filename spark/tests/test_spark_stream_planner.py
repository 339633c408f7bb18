"""A stream on the driver: what a batch takes, what is planned again after a crash, what is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count

import pyspark
import pytest
from confluent_kafka import Consumer
from pyspark.sql.types import StructType

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError
from asyncbroker.client.groups import committed_offsets
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_partitions, create_topic, delete_topic
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.spark.planner import DataLost, OffsetRange
from asyncbroker.spark.source import AsyncbrokerDataSource
from asyncbroker.spark.stream_offsets import Offsets, from_json, to_json
from asyncbroker.spark.stream_options import StreamOptions
from asyncbroker.spark.stream_planner import StreamPlanner
from asyncbroker.testing import BrokerThread

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

Planner = Callable[..., StreamPlanner]


@pytest.fixture
def cluster(kafka_broker: BrokerThread) -> Iterator[Cluster]:
    with Cluster(kafka_broker.bootstrap_servers) as cluster:
        yield cluster


def put(cluster: Cluster, **counts: int) -> None:
    """Appends records; the names are like `t_0`."""
    cluster.forget()
    batches = {}
    for name, records in counts.items():
        topic, index = name.split("_")
        batch = build_batch([Record(0, 1000 + i, None, b"v") for i in range(records)])
        batches[TopicPartition(topic, int(index))] = batch
    produce(cluster, batches)


@pytest.fixture
def planner(kafka_broker: BrokerThread) -> Iterator[Planner]:
    """A planner with these options, whose clock goes on by a second with each look at it."""
    opened = []

    def make(**given: str) -> StreamPlanner:
        options = {
            "kafka.bootstrap.servers": kafka_broker.bootstrap_servers,
            "subscribe": "t",
            "fetchOffset.retryIntervalMs": "1",
        }
        options |= {name.replace("__", "."): value for name, value in given.items()}
        if "subscribePattern" in options:
            del options["subscribe"]
        opened.append(StreamPlanner(StreamOptions.parse(options), count(1000.0).__next__))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def taken(stream: StreamPlanner, start: Offsets) -> list[int]:
    """The number of offsets in each batch until there is nothing new."""
    sizes = []
    while (end := stream.latest(start, is_limited=True)) != start:
        sizes.append(sum(planned.size for planned in stream.plan(start, end)))
        start = end
    return sizes


def test_a_stream_starts_at_the_latest_offsets_and_saves_them_first(
    cluster: Cluster, planner: Planner
) -> None:
    create_topic(cluster, "t", partitions=2)
    put(cluster, t_0=3)
    stream = planner()
    start = stream.initial()
    assert start == {T0: 3, T1: 0}
    put(cluster, t_0=2)
    assert stream.latest(start, is_limited=True) == start
    assert stream.plan(start, start) == []
    end = stream.latest(start, is_limited=True)
    assert stream.plan(start, end) == [OffsetRange(T0, 3, 5)]


def test_a_first_batch_that_is_planned_again_leaves_out_nothing(
    cluster: Cluster, planner: Planner
) -> None:
    """The driver was killed after it had written the end of the first batch."""
    create_topic(cluster, "t", partitions=2)
    put(cluster, t_0=3)
    stream = planner()
    saved = stream.latest(stream.initial(), is_limited=True)
    put(cluster, t_0=2, t_1=1)
    stream = planner()
    moved = stream.initial()
    assert moved == {T0: 5, T1: 1}
    assert stream.plan(moved, saved) == []
    end = stream.latest(saved, is_limited=True)
    assert stream.plan(saved, end) == [OffsetRange(T0, 3, 5), OffsetRange(T1, 0, 1)]


def test_an_earlier_start_needs_no_empty_batch(cluster: Cluster, planner: Planner) -> None:
    create_topic(cluster, "t", partitions=2)
    put(cluster, t_0=3, t_1=2)
    stream = planner(startingOffsets="earliest")
    start = stream.initial()
    assert taken(stream, start) == [5]
    stream = planner(startingOffsets='{"t": {"0": 1, "1": -2}}')
    assert stream.initial() == {T0: 1, T1: 0}
    stream = planner(startingTimestamp="1002", startingOffsetsByTimestampStrategy="latest")
    assert stream.initial() == {T0: 2, T1: 2}


def test_offsets_must_name_every_partition(cluster: Cluster, planner: Planner) -> None:
    create_topic(cluster, "t", partitions=2)
    with pytest.raises(ValueError, match="you must specify all TopicPartitions"):
        planner(startingOffsets='{"t": {"0": 1}}').initial()


def test_a_batch_takes_no_more_than_it_may_in_proportion_to_what_waits(
    cluster: Cluster, planner: Planner
) -> None:
    create_topic(cluster, "t", partitions=2)
    put(cluster, t_0=10, t_1=5)
    stream = planner(startingOffsets="earliest", maxOffsetsPerTrigger="6")
    start = stream.initial()
    assert stream.latest(start, is_limited=True) == {T0: 4, T1: 2}
    assert taken(stream, start) == [6, 6, 3]
    # A trigger of `once` asks for everything.
    assert stream.latest(start, is_limited=False) == {T0: 10, T1: 5}


def test_a_batch_waits_for_enough_or_long_enough(cluster: Cluster, planner: Planner) -> None:
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=2)
    stream = planner(startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="100s")
    start = stream.latest(stream.initial(), is_limited=True)
    assert start == {T0: 2}, "the first batch waits for nothing"
    put(cluster, t_0=2)
    assert stream.latest(start, is_limited=True) == start
    put(cluster, t_0=3)
    start = stream.latest(start, is_limited=True)
    assert start == {T0: 7}
    put(cluster, t_0=1)
    waits = 0
    while stream.latest(start, is_limited=True) == start:
        waits += 1
    # Each look at the clock is a second later, and a look at partitions is one too.
    assert 45 < waits < 55


def test_what_comes_after_the_freeze_is_not_read(cluster: Cluster, planner: Planner) -> None:
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=4)
    stream = planner(startingOffsets="earliest", maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2")
    stream.freeze()
    put(cluster, t_0=4)
    create_partitions(cluster, "t", 2)
    assert taken(stream, {T0: 0}) == [3, 1]
    assert stream.newest == {T0: 4}


def test_new_partitions_are_read_from_their_beginning(cluster: Cluster, planner: Planner) -> None:
    create_topic(cluster, "t", partitions=1)
    create_topic(cluster, "other", partitions=1)
    stream = planner(subscribePattern="^t", startingOffsets="earliest")
    start = stream.initial()
    create_partitions(cluster, "t", 2)
    create_topic(cluster, "t.more", partitions=1)
    cluster.forget()
    produce(
        cluster,
        {
            TopicPartition("t.more", 0): build_batch([Record(0, 1, None, None)] * 3),
            T1: build_batch([Record(0, 1, None, None)] * 2),
        },
    )
    end = stream.latest(start, is_limited=True)
    assert stream.plan(start, end) == [
        OffsetRange(T1, 0, 2),
        OffsetRange(TopicPartition("t.more", 0), 0, 3),
    ]


@pytest.mark.parametrize("new_records", [3, 5, 9])
def test_a_topic_that_was_made_again_is_seen_whatever_its_offsets(
    cluster: Cluster, planner: Planner, caplog: pytest.LogCaptureFixture, new_records: int
) -> None:
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=5)
    careful, careless = planner(startingOffsets="earliest"), planner(failOnDataLoss="false")
    start = careful.latest(careful.initial(), is_limited=True)
    assert careless.initial() == start
    assert careless.latest(start, is_limited=True) == start
    delete_topic(cluster, "t")
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=new_records)
    with pytest.raises(DataLost, match=r"Some data may have been lost.*deleted and created again"):
        careful.plan(start, careful.latest(start, is_limited=True))
    with caplog.at_level(logging.WARNING):
        assert sum(taken(careless, start)) == new_records
    assert "deleted and created again" in caplog.text


def test_offsets_that_went_backwards_across_a_restart_are_a_loss(
    cluster: Cluster, planner: Planner
) -> None:
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=3)
    saved = {T0: 500}
    stream = planner()
    end = stream.latest(saved, is_limited=True)
    with pytest.raises(DataLost, match="t-0's offset was changed from 500 to 3"):
        stream.plan(saved, end)
    stream = planner(failOnDataLoss="false")
    assert stream.plan(saved, end) == []
    put(cluster, t_0=1)
    assert taken(stream, end) == [1]


def test_latest_offsets_that_went_backwards_are_asked_for_again(
    kafka_broker: BrokerThread,
    cluster: Cluster,
    planner: Planner,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=3)
    asked = kafka_broker.faults.on(api="ListOffsets").delay(0)
    stream = planner(fetchOffset__numRetries="4", fetchOffset__retryIntervalMs="20")
    began = time.monotonic()
    assert stream.latest({T0: 5}, is_limited=True) == {T0: 3}
    assert time.monotonic() - began >= 3 * 0.02
    assert asked.fired == 4
    assert caplog.messages == [
        f"latest offsets went backwards, asked {number} of 4 times: t-0 from 5 to 3"
        for number in (1, 2, 3, 4)
    ]


def test_latest_offsets_that_come_forward_again_are_no_loss(
    kafka_broker: BrokerThread, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A new leader may not know for a moment how far its log is promised."""
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=3)
    looks = count(1)

    def clock() -> float:
        number = next(looks)
        if number == 3:
            put(cluster, t_0=4)
        return 1000.0 + number

    given = {
        "kafka.bootstrap.servers": kafka_broker.bootstrap_servers,
        "subscribe": "t",
        "fetchOffset.retryIntervalMs": "1",
    }
    stream = StreamPlanner(StreamOptions.parse(given), clock)
    with closing(stream):
        end = stream.latest({T0: 5}, is_limited=True)
        assert stream.plan({T0: 5}, end) == [OffsetRange(T0, 5, 7)]
    assert len(caplog.messages) == 2


def test_partitions_that_are_gone_are_a_loss(cluster: Cluster, planner: Planner) -> None:
    create_topic(cluster, "t", partitions=1)
    create_topic(cluster, "t2", partitions=1)
    start = {T0: 0, TopicPartition("t2", 0): 0}
    delete_topic(cluster, "t2")
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        planner(subscribe="t,t2").latest(start, is_limited=True)
    by_pattern = planner(subscribePattern="t.*")
    with pytest.raises(DataLost, match=r"t2-0} are gone\. Some data may have been missed"):
        by_pattern.plan(start, by_pattern.latest(start, is_limited=True))
    put(cluster, t_0=2)
    careless = planner(subscribe="t,t2", failOnDataLoss="false")
    assert taken(careless, start) == [2]
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        planner(subscribe="misspelt", failOnDataLoss="false").initial()


def test_a_batch_whose_topic_is_gone_when_it_is_planned_again(
    cluster: Cluster, planner: Planner
) -> None:
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=2)
    ends = {T0: 2, TopicPartition("gone", 0): 7}
    with pytest.raises(DataLost, match="UNKNOWN_TOPIC_OR_PARTITION"):
        planner().plan({T0: 0}, ends)
    careless = planner(failOnDataLoss="false")
    assert careless.plan({T0: 0}, ends) == [OffsetRange(T0, 0, 2)]


def test_records_that_were_deleted_before_they_were_read_are_a_loss(
    kafka_broker: BrokerThread, cluster: Cluster, planner: Planner
) -> None:
    from asyncbroker.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    create_topic(cluster, "t", partitions=2)
    put(cluster, t_0=10, t_1=10)
    rows = [DeleteRecordsPartition(index, 4) for index in (0, 1)]
    deadline = cluster.deadline()
    cluster.any_connection(deadline).request(
        DeleteRecordsRequest([DeleteRecordsTopic("t", rows)], 1000), DeleteRecordsResponse, deadline
    )
    start, end = {T0: 1}, {T0: 10, T1: 10}
    with pytest.raises(DataLost, match="t-0 begins at offset 4, and 1 was asked for"):
        planner().plan(start, end)
    with pytest.raises(DataLost, match="Added partition t-1 starts from 4 instead of 0"):
        planner().plan({T0: 5}, end)
    careless = planner(failOnDataLoss="false")
    assert careless.plan(start, end) == [OffsetRange(T0, 4, 10), OffsetRange(T1, 4, 10)]


def test_finished_offsets_are_committed_for_a_group(cluster: Cluster, planner: Planner) -> None:
    create_topic(cluster, "t", partitions=2)
    planner().commit({T0: 7})
    assert committed_offsets(cluster, "watched") == {}
    stream = planner(commitOffsets="true", kafka__group__id="watched", startingOffsets="earliest")
    put(cluster, t_0=3, t_1=1)
    assert taken(stream, {T0: 1, T1: 0}) == [3]
    found = committed_offsets(cluster, "watched")
    assert {partition: committed.offset for partition, committed in found.items()} == {T0: 3, T1: 1}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_warned_of_and_committed_for_when_they_are_gone(
    kafka_broker: BrokerThread,
    cluster: Cluster,
    planner: Planner,
    protocol: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka takes commits from nobody but members then, and the stream does not live by them."""
    create_topic(cluster, "t", partitions=1)
    given = {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "watched"}
    member = Consumer(given | {"group.protocol": protocol, "enable.auto.commit": False})
    member.subscribe(["t"])
    while not member.assignment():
        member.poll(0.1)
    stream = planner(commitOffsets="true", kafka__group__id="watched")
    for end in range(3):
        stream.commit({T0: end})
    assert caplog.text.count("offsets of group 'watched' were not committed") == 1
    assert "it has members" in caplog.text
    assert committed_offsets(cluster, "watched") == {}
    member.close()
    stream.commit({T0: 2})
    assert committed_offsets(cluster, "watched")[T0].offset == 2


def test_offsets_in_the_checkpoint_are_those_of_the_connector() -> None:
    offsets = {TopicPartition("t", 10): 1, TopicPartition("t", 9): 2, TopicPartition("a", 0): 3}
    found = to_json(offsets)
    assert list(found) == ["a", "t"]
    assert list(found["t"]) == ["9", "10"]
    assert from_json(found) == offsets
    with pytest.raises(ValueError, match="has no offsets like"):
        from_json({"index": 5})


REFUSED = [
    ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
    ({"endingTimestamp": "5"}, "ending timestamp not valid in streaming queries"),
    (
        {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
        r"minOffsetsPerTrigger\(9\) is higher than the maxOffsetsPerTrigger\(5\)",
    ),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be positive"),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a duration like 15m, not 'soon'"),
    ({"commitOffsets": "true"}, "commitOffsets needs the option 'kafka.group.id'"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_a_stream_cannot_do_is_refused(options: dict[str, str], words: str) -> None:
    minimal = {"kafka.bootstrap.servers": "b", "subscribe": "t"}
    with pytest.raises(ValueError, match=words):
        StreamOptions.parse(minimal | options)


@pytest.mark.parametrize("method", ["streamReader", "streamWriter"])
def test_a_pyspark_that_is_too_old_for_streams_is_told_so(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.0.dev1")
    source = AsyncbrokerDataSource({"kafka.bootstrap.servers": "b", "subscribe": "t"})
    arguments = [StructType()] if method == "streamReader" else [StructType(), False]
    with pytest.raises(ImportError, match=r"need PySpark 4\.2 or later, and this is 4\.1\.0"):
        getattr(source, method)(*arguments)


def test_durations_are_read_as_spark_writes_them() -> None:
    minimal = {"kafka.bootstrap.servers": "b", "subscribe": "t"}

    def delay_ms(text: str) -> float:
        return StreamOptions.parse(minimal | {"maxTriggerDelay": text}).trigger_delay_max_ms

    assert [delay_ms(text) for text in ("15m", " 2 H", "250", "3s", "10min", "1d")] == [
        900_000,
        7_200_000,
        250,
        3000,
        600_000,
        86_400_000,
    ]


@pytest.mark.parametrize("prefix", [{}, {"groupIdPrefix": "prefix"}])
def test_a_group_comes_of_committed_offsets_only(
    kafka_broker: BrokerThread, cluster: Cluster, planner: Planner, prefix: dict[str, str]
) -> None:
    """`kafka.group.id` and `groupIdPrefix` alone are taken, and nobody joins or commits."""
    create_topic(cluster, "t", partitions=1)
    put(cluster, t_0=3)
    given = {"kafka__group__id": "named", "startingOffsets": "earliest", **prefix}
    for commits, groups in (("false", []), ("true", ["named"])):
        stream = planner(commitOffsets=commits, **given)
        start = stream.initial()
        end = stream.latest(start, is_limited=True)
        assert stream.plan(start, end) == [OffsetRange(T0, 0, 3)]
        stream.commit(end)
        assert [(group.group_id, group.members) for group in kafka_broker.groups] == [
            (name, ()) for name in groups
        ]
    assert not kafka_broker.requests.of("JoinGroup")
    assert {p: row.offset for p, row in committed_offsets(cluster, "named").items()} == {T0: 3}
