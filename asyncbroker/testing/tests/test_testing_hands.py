"""Direct hands on topics and groups, the requests that were seen, and the assertions' diffs."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from asyncbroker.protocol.errors import KafkaError
from asyncbroker.testing import (
    Broker,
    BrokerThread,
    Group,
    Member,
    Record,
    assert_committed,
    assert_rebalanced,
    assert_records,
)
from asyncbroker.testing.requests import Requests
from asyncbroker.testing.tests.testing_harness import make_request


def poll(consumer: Consumer) -> bytes:
    """The value of the next record."""
    message = consumer.poll(10)
    assert message is not None
    value = message.value()
    assert value is not None
    return value


def member_of(broker: Broker, name: str) -> AIOKafkaConsumer:
    """A member of group g with topic t."""
    return AIOKafkaConsumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        client_id=name,
        heartbeat_interval_ms=50,
    )


async def test_aiokafka_writes_and_the_test_reads() -> None:
    async with (
        Broker(num_partitions=2) as broker,
        AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        await producer.send_and_wait("t", b"v0", key=b"k0", partition=0, timestamp_ms=5)
        await producer.send_and_wait("t", None, key=b"k1", partition=1, headers=[("h", b"x")])
        records = await broker.wait_for(records=2, topic="t")
        assert records[0] == Record("t", 0, 0, 5, b"k0", b"v0")
        assert records[1].headers == (("h", b"x"),)
        assert broker.topic("t").records(partition=1) == [records[1]]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(codec: str) -> None:
    with BrokerThread() as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "compression.type": codec,
                "linger.ms": 50,
            }
        )
        for number in range(50):
            producer.produce("t", b"value %d" % number)
        assert producer.flush(10) == 0
        assert_records(broker.topic("t"), [f"value {number}" for number in range(50)])


def test_a_client_reads_what_the_test_writes_and_the_test_sees_its_group() -> None:
    with BrokerThread() as broker:
        broker.topic("t").create(2)
        for number in range(4):
            broker.topic("t").append(str(number), partition=number % 2)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "client.id": "reader",
                "group.instance.id": "one",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        assert sorted(poll(consumer) for _ in range(4)) == [b"0", b"1", b"2", b"3"]
        consumer.commit(asynchronous=False)
        group = broker.group("g")
        assert (group.state, group.generation) == ("Stable", 1)
        (member,) = group.members
        assert (member.client_id, member.instance_id) == ("reader", "one")
        assert member.partitions == (("t", 0), ("t", 1))
        assert_committed(group, {("t", 0): 2, ("t", 1): 2})
        assert [each.group_id for each in broker.groups] == ["g"]
        consumer.close()
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            broker.topic("t").create()


async def test_a_second_member_makes_the_next_generation() -> None:
    async with Broker() as broker:
        await broker.topic("t").create(2)
        async with member_of(broker, "first"):
            await broker.wait_for(group="g", state="Stable", members=1)
            first = broker.group("g").generation
            async with member_of(broker, "second"):
                await broker.wait_for(group="g", state="Stable", members=2)
                group = broker.group("g")
                assert group.generation > first
                assert sorted(member.client_id for member in group.members) == ["first", "second"]
                assert all(len(member.partitions) == 1 for member in group.members)
        await broker.wait_for(group="g", state="Empty")


async def test_a_rebalance_is_asserted_and_shown() -> None:
    async with Broker() as broker:
        await broker.topic("t").create(2)
        async with member_of(broker, "first"):
            await broker.wait_for(group="g", state="Stable", members=1)
            before = broker.group("g")
            with pytest.raises(AssertionError, match="it is still in generation 1"):
                assert_rebalanced(before, broker.group("g"))
            async with member_of(broker, "second"):
                await broker.wait_for(group="g", state="Stable", members=2)
                after = broker.group("g")
                assert_rebalanced(before, after, members=2)
                with pytest.raises(AssertionError) as failed:
                    assert_rebalanced(before, after, members=3, generations=99)
    text = str(failed.value)
    assert "rebalances, not 99; it has 2 members, not 3" in text
    assert f"- first ({before.members[0].member_id}): t-0, t-1" in text
    assert "+ second (" in text


def test_partitions_without_an_owner_or_with_two_are_told() -> None:
    def member(name: str, *partitions: int) -> Member:
        return Member(name, name, "host", None, tuple(("t", index) for index in partitions))

    before = Group("g", "Stable", 1, (member("a", 0, 1),))
    after = Group("g", "Stable", 2, (member("a", 0), member("b", 0)))
    with pytest.raises(AssertionError, match="t-0 has 2 owners; t-1 has no owner"):
        assert_rebalanced(before, after)


def test_an_append_wakes_a_client_that_waits() -> None:
    async def run() -> None:
        async with Broker() as broker:
            await broker.topic("t").create()
            consumer = AIOKafkaConsumer(
                "t",
                bootstrap_servers=broker.bootstrap_servers,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=20_000,
            )
            async with consumer:
                reading = asyncio.create_task(consumer.getone())
                await broker.wait_for(until=lambda: bool(broker.requests.of("Fetch", "t")))
                await broker.topic("t").append("at once")
                assert (await asyncio.wait_for(reading, 5)).value == b"at once"

    asyncio.run(run())


# ---- requests


def test_requests_name_topics_by_name_where_the_wire_has_ids_and_groups() -> None:
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        assert poll(consumer) == b"one"
        consumer.close()
        assert broker.requests.of("Fetch", "t")
        assert broker.requests.of("OffsetCommit", "t")[0].groups == ("g",)
        assert broker.requests.of("FindCoordinator")[0].groups == ("g",)
        text = broker.requests.describe()
        assert "Fetch v16  rdkafka  t-0" in text
        assert "OffsetCommit v9  rdkafka  g  t-0" in text


def test_equal_requests_share_a_line_and_old_ones_are_left_out() -> None:
    requests = Requests(kept=4)
    for number in range(6):
        request = make_request(at=float(number), api="Fetch" if number > 3 else "Produce")
        request.answered(None)
        requests._ring.append(request)
    lines = requests.describe().splitlines()
    assert [line.split("  ", 1)[1].split("  t-0")[0] for line in lines] == [
        "Produce v9  c",
        "Fetch v9  c",
    ]
    assert lines[0].endswith("(2 times)")
    assert requests.describe(since=5.0).count("\n") == 0
    assert requests.describe(lines_max=1).startswith("... 1 lines before these\n")


# ---- assertions

RECORDS = [
    Record("t", 0, 0, 10, b"a", b"1"),
    Record("t", 0, 1, 20, None, b"2", (("h", b"x"),)),
]


def test_records_are_held_against_what_a_test_cares_about() -> None:
    assert_records(RECORDS, ["1", b"2"])
    assert_records(RECORDS, [("a", "1"), (None, "2")])
    assert_records(RECORDS, [{"offset": 0}, {"headers": {"h": b"x"}, "value": "2"}])
    assert_records(RECORDS, RECORDS)
    assert_records(RECORDS, ["2", "1"], in_order=False)
    assert_records(RECORDS, [{"offset": 1}, "1"], in_order=False)
    assert_records([], [])


def test_records_that_differ_are_shown_as_a_diff() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_records(RECORDS, ["1", "3"])
    assert str(caught.value) == (
        "the records are not as expected:\n    value=b'1'\n  - value=b'3'\n  + value=b'2'"
    )
    with pytest.raises(AssertionError) as caught:
        assert_records(RECORDS, [("a", "1")])
    assert str(caught.value) == (
        "2 records, not the 1 expected:\n    key=b'a'  value=b'1'\n  + key=None  value=b'2'"
    )
    with pytest.raises(AssertionError, match="- value=b'9'"):
        assert_records(RECORDS, ["9", "2"], in_order=False)
    with pytest.raises(ValueError, match="a record has no size"):
        assert_records(RECORDS, [{"size": 1}])


def test_offsets_that_differ_are_shown_as_a_diff() -> None:
    group = Group("g", "Empty", 3, offsets={("t", 0): 5, ("t", 1): 6})
    assert_committed(group, {("t", 1): 6, ("t", 0): 5})
    with pytest.raises(AssertionError) as caught:
        assert_committed(group, {("t", 0): 4, ("t", 1): 6})
    assert str(caught.value) == (
        "group g (Empty) has committed something else:\n  - t-0: 4\n  + t-0: 5\n    t-1: 6"
    )
