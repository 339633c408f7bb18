"""The broker's clock in the test's hands: what falls due is done when the call returns."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from asyncbroker.testing import Broker, BrokerThread, assert_committed, assert_records
from asyncbroker.testing.loop_thread import NotRunning
from asyncbroker.testing.profile import SettingValue


def _consumer(broker: BrokerThread, **settings: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    consumer.subscribe(["t"])
    assert consumer.poll(10) is not None
    return consumer


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "directory"])
def test_retention_deletes_at_once_what_became_too_old(is_on_disk: bool, tmp_path: Path) -> None:
    with BrokerThread(directory=tmp_path / "data" if is_on_disk else None) as broker:
        topic = broker.topic("t").create(1, {"retention.ms": 3_600_000})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"old")
        producer.flush()
        broker.clock.advance(minutes=59)
        topic.append("young")
        assert_records(topic, ["old", "young"])
        # Both are in the newest segment, which counts by its youngest record.
        broker.clock.advance(minutes=2)
        assert_records(topic, ["old", "young"])
        broker.clock.advance(minutes=59)
        assert topic.records() == []
        topic.append("new")
        assert [record.offset for record in topic.records()] == [2]
        broker.clock.advance(minutes=2)
        if is_on_disk:
            names = {path.name for path in (tmp_path / "data" / "t-0").glob("*.log*")}
            assert names == {"00000000000000000002.log"}


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "directory"])
def test_a_tombstone_vanishes_with_what_it_deleted(is_on_disk: bool, tmp_path: Path) -> None:
    settings: dict[str, SettingValue] = {
        "cleanup.policy": "compact",
        "segment.ms": 1000,
        "min.cleanable.dirty.ratio": 0,
        "delete.retention.ms": 86_400_000,
    }
    with BrokerThread(directory=tmp_path / "data" if is_on_disk else None) as broker:
        topic = broker.topic("t").create(1, settings)
        topic.append("one", key="k")
        topic.append(None, key="k")
        broker.clock.advance(seconds=2)
        topic.append("other", key="other")
        broker.clock.advance(minutes=1)
        assert [record.value for record in topic.records()] == [None, b"other"]
        broker.clock.advance(hours=25)
        assert_records(topic, [("other", "other")])


def test_one_jump_is_long_enough_for_both_turns_of_the_cleaner() -> None:
    settings: dict[str, SettingValue] = {
        "cleanup.policy": "compact",
        "segment.ms": 1000,
        "min.cleanable.dirty.ratio": 0,
    }
    with BrokerThread() as broker:
        topic = broker.topic("t").create(1, settings)
        topic.append(None, key="k")
        broker.clock.advance(seconds=2)
        topic.append("other", key="other")
        broker.clock.advance(hours=25)
        assert_records(topic, [("other", "other")])


def test_a_member_misses_its_heartbeats_in_a_jump_and_comes_back() -> None:
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        consumer = _consumer(broker, heartbeat_interval_ms=100)
        broker.clock.advance(seconds=44)
        assert broker.group("g").state == "Stable"
        # It would be back before the test has looked.
        broker.faults.on(api="JoinGroup", times=1).delay(500)
        broker.clock.advance(seconds=46)
        group = broker.group("g")
        assert (group.state, group.members) == ("Empty", ())
        deadline = time.monotonic() + 10
        while not broker.group("g").members and time.monotonic() < deadline:
            consumer.poll(0.05)
        assert broker.group("g").members
        consumer.close()


def test_members_are_kept_through_a_jump_of_days() -> None:
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        consumer = _consumer(broker, heartbeat_interval_ms=100)
        consumer.commit(asynchronous=False)
        before = broker.group("g")
        broker.clock.advance(days=30, keep_members=True)
        assert broker.group("g") == before
        # What is kept is as mortal as before.
        broker.faults.on(api="JoinGroup", times=1).delay(500)
        broker.clock.advance(seconds=46)
        assert broker.group("g").state == "Empty"
        consumer.close()


def test_offsets_expire_and_the_group_with_them() -> None:
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        consumer = _consumer(broker)
        consumer.commit(asynchronous=False)
        consumer.close()
        broker.wait_for(group="g", state="Empty")
        broker.clock.advance(days=6.9)
        assert_committed(broker.group("g"), {("t", 0): 1})
        broker.clock.advance(hours=3)
        assert broker.group("g").offsets == {}
        assert broker.group("g").state == "Dead"


def test_a_week_is_not_long() -> None:
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        began = time.monotonic()
        broker.clock.advance(days=7)
        assert time.monotonic() - began < 5


async def test_a_frozen_clock_stands_until_it_is_moved() -> None:
    async with Broker(clock="frozen") as broker:
        then = broker.clock.now()
        first = await broker.topic("t").append("one")
        second = await broker.topic("t").append("two")
        assert first.timestamp == second.timestamp == int(then.timestamp() * 1000)
        await broker.clock.advance(hours=3, ms=5)
        third = await broker.topic("t").append("three")
        assert third.timestamp - first.timestamp == 3 * 3_600_000 + 5
        assert broker.clock.now() - then == timedelta(hours=3, milliseconds=5)
        broker.clock.resume()
        while broker.clock.now() - then == timedelta(hours=3, milliseconds=5):
            await broker.wait_for(until=lambda: True)
        broker.clock.freeze()
        assert broker.clock.now() == broker.clock.now()


def test_clients_are_served_while_time_stands_still() -> None:
    with BrokerThread(clock="frozen") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"one")
        assert producer.flush(10) == 0
        consumer = _consumer(broker)
        # A poll that finds nothing ends by the client's time.
        assert consumer.poll(0.7) is None
        consumer.close()


def test_the_clock_outlives_a_restart() -> None:
    with BrokerThread() as broker:
        broker.topic("t").create(1, {"retention.ms": 7_200_000}).append("one")
        broker.clock.advance(hours=1)
        now = broker.clock.now()
        broker.restart()
        assert broker.clock.now() - now < timedelta(minutes=1)
        broker.clock.advance(hours=1, minutes=1)
        assert broker.topic("t").records() == []


def test_the_wall_clock_alone_may_jump_and_is_not_believed_at_once() -> None:
    with BrokerThread(clock="frozen") as broker:
        broker.topic("t").create(1, {"retention.ms": 3_600_000}).append("one")
        now = broker.clock.now()
        broker.clock.set(now + timedelta(days=1))
        assert broker.clock.now() == now + timedelta(days=1)
        broker.clock.advance()
        assert_records(broker.topic("t"), ["one"])
        broker.clock.advance(minutes=61)
        assert broker.topic("t").records() == []
        broker.clock.set(datetime(2020, 1, 1, tzinfo=timezone.utc))
        assert broker.topic("t").append("two").timestamp == 1_577_836_800_000


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="clock='fast'"):
        BrokerThread(clock="fast")
    with BrokerThread() as broker:
        with pytest.raises(ValueError, match="forward"):
            broker.clock.advance(hours=-1)
        with pytest.raises(ValueError, match="zone"):
            broker.clock.set(datetime(2020, 1, 1))
    with pytest.raises(NotRunning):
        broker.clock.advance(hours=1)
