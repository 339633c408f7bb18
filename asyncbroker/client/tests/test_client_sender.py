"""Sending several batches at a time: each is there once and in order, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError, ClientError
from asyncbroker.client.producer import Producer
from asyncbroker.client.sender import IN_FLIGHT_MAX, Sender
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.records import Compression, Record, build_batch
from asyncbroker.testing import BrokerThread
from asyncbroker.testing.faults import Fault, FaultPoint

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster(kafka_broker: BrokerThread) -> Iterator[Cluster]:
    with Cluster(kafka_broker.bootstrap_servers, retry_backoff_ms=1, timeout_ms=5000) as cluster:
        create_topic(cluster, "t", partitions=2)
        yield cluster


def batch(first: int, count: int, codec: Compression = Compression.NONE) -> bytearray:
    numbers = range(first, first + count)
    records = [Record(0, 1000 + n, b"key-%d" % n, b"%d" % n) for n in numbers]
    return build_batch(records, compression=codec)


def values(broker: BrokerThread, partition: int) -> list[int]:
    return [int(r.value or b"") for r in broker.topic("t").records() if r.partition == partition]


def send_all(sender: Sender, batches: int, per_batch: int = 3) -> list[int]:
    """Sends batches to both partitions in turn; returns what each partition should hold."""
    for number in range(batches):
        for partition in (P0, P1):
            sender.send(partition, batch(number * per_batch, per_batch))
    sender.flush()
    return list(range(batches * per_batch))


def test_batches_arrive_once_and_in_order(kafka_broker: BrokerThread, cluster: Cluster) -> None:
    with Sender(cluster) as sender:
        expected = send_all(sender, 40)
    assert values(kafka_broker, 0) == values(kafka_broker, 1) == expected


FAULTS: dict[str, Callable[[FaultPoint], Fault]] = {
    "the connection breaks before a request is handled": lambda on: on.drop_connection(),
    "the connection breaks after a request was handled": lambda on: on.drop_connection(
        before=False
    ),
    "the leader is said to be elsewhere": lambda on: on.error(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "the disk fails for a while": lambda on: on.error(ErrorCode.KAFKA_STORAGE_ERROR),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_on_the_way_loses_nothing_and_doubles_nothing(
    kafka_broker: BrokerThread, cluster: Cluster, fault: str
) -> None:
    set_fault = FAULTS[fault]
    for nth in (2, 5, 9):
        set_fault(kafka_broker.faults.on(api="Produce", nth=nth, times=1))
    with Sender(cluster) as sender:
        expected = send_all(sender, 30)
    assert values(kafka_broker, 0) == values(kafka_broker, 1) == expected


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    faults=st.lists(
        st.tuples(st.sampled_from(sorted(FAULTS)), st.integers(1, 12)), max_size=4, unique=True
    ),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=20),
)
def test_any_row_of_faults_loses_nothing_and_doubles_nothing(
    kafka_broker: BrokerThread,
    cluster: Cluster,
    faults: list[tuple[str, int]],
    sizes: list[int],
) -> None:
    before = [len(values(kafka_broker, partition)) for partition in (0, 1)]
    kafka_broker.faults.clear()
    for fault, nth in faults:
        FAULTS[fault](kafka_broker.faults.on(api="Produce", nth=nth, times=1))
    total = [0, 0]
    with Sender(cluster) as sender:
        for place, size in enumerate(sizes):
            index = place % 2
            sender.send(TopicPartition("t", index), batch(total[index], size))
            total[index] += size
        sender.flush()
    kafka_broker.faults.clear()
    for index in (0, 1):
        assert values(kafka_broker, index)[before[index] :] == list(range(total[index]))


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.kafka(message_max_bytes=2000)
def test_a_batch_that_is_too_large_is_cut(
    kafka_broker: BrokerThread, cluster: Cluster, codec: Compression
) -> None:
    with Sender(cluster) as sender:
        for first in range(0, 2000, 500):
            sender.send(P0, batch(first, 500, codec))
        sender.flush()
    assert values(kafka_broker, 0) == list(range(2000))


@pytest.mark.kafka(message_max_bytes=2000)
def test_a_record_that_is_too_large_is_named(kafka_broker: BrokerThread, cluster: Cluster) -> None:
    records = [Record(0, 1, b"small", b"v"), Record(0, 1, b"huge", bytes(5000))]
    with Sender(cluster) as sender:
        sender.send(P1, build_batch(records), numbers=[40, 41])
        with pytest.raises(BrokerError, match=r"t-1, record 41 \(key b'huge', a value of 5,000 by"):
            sender.flush()


def test_a_record_that_breaks_a_rule_is_named(kafka_broker: BrokerThread, cluster: Cluster) -> None:
    create_topic(cluster, "compacted", partitions=1, configs={"cleanup.policy": "compact"})
    records = [Record(0, 1, b"k", b"v"), Record(0, 1, None, b"v"), Record(0, 1, b"k", b"v")]
    with Sender(cluster) as sender:
        sender.send(TopicPartition("compacted", 0), build_batch(records), numbers=[7, 8, 9])
        with pytest.raises(BrokerError, match=r"compacted-0, record 8 \(no key, .*INVALID_RECORD"):
            sender.flush()


def test_a_producer_numbers_its_records_for_errors(
    kafka_broker: BrokerThread, cluster: Cluster
) -> None:
    create_topic(cluster, "compacted", partitions=1, configs={"cleanup.policy": "compact"})
    with Producer(cluster, "compacted") as producer:
        for key in (b"k", b"k", None):
            producer.flush()
            producer.send(b"v", key=key)
        with pytest.raises(BrokerError, match=r"compacted-0, record 3 \(no key, .*INVALID_RECORD"):
            producer.flush()


def test_a_partition_that_is_not_there_is_an_error_at_once(
    kafka_broker: BrokerThread, cluster: Cluster
) -> None:
    with Sender(cluster) as sender, pytest.raises(BrokerError, match="t-7"):
        sender.send(TopicPartition("t", 7), batch(0, 1))


def test_a_batch_is_given_up_after_its_time(kafka_broker: BrokerThread, cluster: Cluster) -> None:
    kafka_broker.faults.on(api="Produce").error(ErrorCode.NOT_ENOUGH_REPLICAS)
    with Sender(cluster, delivery_timeout_ms=20) as sender:
        sender.send(P0, batch(0, 2), numbers=[5, 6])
        with pytest.raises(
            ClientError, match=r"t-0, records 5 to 6 could not be written.*NOT_ENOUGH_REPLICAS"
        ):
            sender.flush()


def test_what_waits_and_what_is_under_way_is_bounded(
    kafka_broker: BrokerThread, cluster: Cluster
) -> None:
    size = len(batch(0, 100))
    with Sender(cluster, buffer_bytes_max=3 * size, request_bytes_max=size) as sender:
        for number in range(20):
            sender.send(P0, batch(number * 100, 100))
            assert sender.waiting_bytes <= 3 * size
            assert sender.requests_under_way <= IN_FLIGHT_MAX
        sender.flush()
    assert values(kafka_broker, 0) == list(range(2000))


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acks_need_no_producer_id(
    kafka_broker: BrokerThread, cluster: Cluster, acks: int
) -> None:
    with Sender(cluster, acks=acks) as sender:
        expected = send_all(sender, 10)
        # What comes after it on the connection is answered after it.
        sender.close()
    with Sender(cluster) as later:
        later.send(P1, batch(len(expected), 1))
        later.flush()
    assert not kafka_broker.requests.of("InitProducerId")[1:]
    if acks:
        assert values(kafka_broker, 0) == expected


@pytest.mark.kafka(nodes=3)
def test_leaders_are_asked_side_by_side_and_followed(kafka_broker: BrokerThread) -> None:
    with Cluster(kafka_broker.bootstrap_servers, retry_backoff_ms=1) as cluster:
        create_topic(cluster, "spread", partitions=3)
        partitions = cluster.partitions_of("spread")
        with Sender(cluster) as sender:
            for number in range(30):
                if number == 15:
                    kafka_broker.move_leader("spread", 0, to=2)
                for partition in partitions:
                    sender.send(partition, batch(number, 1))
            sender.flush()
    records = kafka_broker.topic("spread").records()
    for index in range(3):
        found = [int(r.value or b"") for r in records if r.partition == index]
        assert found == list(range(30))
