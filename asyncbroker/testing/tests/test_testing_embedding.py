"""Brokers inside a process: start, state over restarts, many at once, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import socket
import threading
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import asyncbroker.broker
from asyncbroker.client.cluster import Cluster
from asyncbroker.client.connection import Address, Connection
from asyncbroker.client.producer import Producer
from asyncbroker.config import ConfigError
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.server import CannotListen
from asyncbroker.testing import Broker, BrokerThread, WaitTimedOut
from asyncbroker.testing.embedding import Topic
from asyncbroker.testing.loop_thread import NotRunning
from asyncbroker.testing.node import Node
from asyncbroker.testing.thread import ThreadTopic
from asyncbroker.tests.edge_harness import on_both_loops


def produce(bootstrap_servers: str, topic: str, *values: bytes) -> None:
    with Cluster(bootstrap_servers) as cluster, Producer(cluster, topic) as producer:
        for value in values:
            producer.send(value)
        producer.flush()


def answers(bootstrap_servers: str) -> bool:
    address = Address.parse(bootstrap_servers)
    Connection.open(address, client_id="look", timeout_s=5).close()
    return True


@on_both_loops
async def test_a_broker_runs_on_any_asyncio_loop() -> None:
    async with Broker() as broker:
        assert await asyncio.to_thread(answers, broker.bootstrap_servers)
        appended = await broker.topic("t").append("one", key="k", headers=[("h", b"1")])
        assert broker.topic("t").records() == [appended]
        assert broker.topics == ["t"]
    with pytest.raises(NotRunning):
        broker.topic("t").records()


def test_a_broker_in_a_thread_serves_blocking_clients() -> None:
    with BrokerThread() as broker:
        produce(broker.bootstrap_servers, "t", b"a", b"b")
        records = broker.wait_for(records=2, topic="t")
        assert [(record.offset, record.value) for record in records] == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "directory"])
def test_a_restart_keeps_port_topics_records_and_offsets(is_on_disk: bool, tmp_path: Path) -> None:
    with BrokerThread(directory=tmp_path / "data" if is_on_disk else None) as broker:
        before = broker.bootstrap_servers
        produce(before, "t", b"a", b"b")
        broker.topic("parts").create(3, {"max.message.bytes": 4096})
        broker.restart(down_seconds=0.05)
        assert broker.bootstrap_servers == before
        produce(before, "t", b"c")
        assert [record.value for record in broker.topic("t").records()] == [b"a", b"b", b"c"]
        assert broker.topics == ["parts", "t"]


def test_nobody_listens_during_the_pause_of_a_restart_and_nobody_else_gets_the_port() -> None:
    async def run() -> None:
        async with Broker() as broker:
            host, _, port = broker.bootstrap_servers.rpartition(":")
            restarting = asyncio.create_task(broker.restart(down_seconds=0.2))
            await asyncio.sleep(0.1)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, int(port))
            with pytest.raises(OSError, match="in use"), socket.socket() as other:
                other.bind((host, int(port)))
            await restarting
            assert await asyncio.to_thread(answers, broker.bootstrap_servers)

    asyncio.run(run())


def test_a_stopped_broker_can_be_started_again_with_what_it_had() -> None:
    broker = BrokerThread()
    with broker:
        broker.topic("t").append("kept")
    with broker:
        assert [record.value for record in broker.topic("t").records()] == [b"kept"]


def test_many_brokers_run_side_by_side() -> None:
    async def run() -> None:
        brokers = [Broker() for _ in range(20)]
        await asyncio.gather(*(broker.start() for broker in brokers))
        try:
            assert len({broker.bootstrap_servers for broker in brokers}) == 20
            for number, broker in enumerate(brokers):
                await broker.topic("t").append(str(number))
            values = [broker.topic("t").records()[0].value for broker in brokers]
            assert values == [str(number).encode() for number in range(20)]
        finally:
            await asyncio.gather(*(broker.stop() for broker in brokers))

    asyncio.run(run())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def in_a_thread(directory: Path | None) -> None:
    with BrokerThread(directory=directory) as broker:
        produce(broker.bootstrap_servers, "t", b"x")
        assert len(broker.topic("t").records()) == 1


def on_the_loop(directory: Path | None) -> None:
    async def run() -> None:
        async with Broker(directory=directory) as broker:
            await asyncio.to_thread(produce, broker.bootstrap_servers, "t", b"x")
            assert len(broker.topic("t").records()) == 1

    asyncio.run(run())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
@pytest.mark.parametrize("one", [in_a_thread, on_the_loop])
def test_two_hundred_brokers_one_after_another_leave_nothing(
    one: Callable[[Path | None], None], tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        # A socket that nobody closed would be a ResourceWarning.
        warnings.simplefilter("error")
        for number in range(10):
            one(None if number % 2 else tmp_path / f"before {number}")
        gc.collect()
        files, threads, objects = open_files(), threading.active_count(), len(gc.get_objects())
        for number in range(200):
            one(None if number % 10 else tmp_path / str(number))
        gc.collect()
    assert open_files() == files
    assert threading.active_count() == threads
    # Of each broker there are thousands; what may grow are caches of others, by a few in all.
    assert len(gc.get_objects()) - objects < 400
    classes = (Broker, BrokerThread, Node, asyncbroker.broker.Broker)
    assert not [kept for kept in gc.get_objects() if isinstance(kept, classes)]


def test_both_kinds_of_broker_have_the_same_methods_with_the_same_parameters() -> None:
    for thread, loop, more in (
        (BrokerThread, Broker, {"wait_for_async"}),
        (ThreadTopic, Topic, set[str]()),
    ):
        names = {name for name in vars(thread) if not name.startswith("_")}
        assert names - more == {name for name in vars(loop) if not name.startswith("_")}
        for name in names - more:
            one, other = getattr(thread, name), getattr(loop, name)
            assert one.__doc__, name
            if callable(one):
                parameters = inspect.signature(one).parameters.items()
                assert list(parameters) == list(inspect.signature(other).parameters.items()), name


def test_settings_go_by_kafkas_names_and_a_wrong_one_is_told() -> None:
    with BrokerThread({"num.partitions": 3}, auto_create_topics_enable=False) as broker:
        broker.topic("t").create()
        broker.topic("t").append("last", partition=2)
        with pytest.raises(LookupError, match="3 partitions, and none with index 3"):
            broker.topic("t").append("none", partition=3)
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
        BrokerThread(num_partition=3)


def test_replication_factors_are_capped_in_the_test_profile() -> None:
    from asyncbroker.client.topics import create_topic

    with BrokerThread() as broker, Cluster(broker.bootstrap_servers) as cluster:
        create_topic(cluster, "t", partitions=2, replication_factor=3)
        assert broker.topics == ["t"]


def test_a_port_in_use_is_an_error_and_leaves_no_thread() -> None:
    threads = threading.active_count()
    with BrokerThread() as first:
        port = int(first.bootstrap_servers.rpartition(":")[2])
        second = BrokerThread(port=port)
        with pytest.raises(CannotListen, match="in use"):
            second.start()
        assert threading.active_count() == threads + 1
        with pytest.raises(NotRunning):
            second.topic("t").records()


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", ""])
def test_a_broker_may_listen_elsewhere(host: str) -> None:
    with BrokerThread(host=host) as broker:
        assert answers(broker.bootstrap_servers)
        before = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == before
        assert answers(before)


def test_waiting_says_what_there_was_instead() -> None:
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        with pytest.raises(WaitTimedOut, match=r"after 0\.02 s: topic t has 1 records, not 2"):
            broker.wait_for(records=2, topic="t", timeout=0.02)
        with pytest.raises(
            WaitTimedOut, match=r"not 1 members, but:\ngroup g: Dead, generation -1"
        ):
            broker.wait_for(group="g", members=1, timeout=0.02)
        with pytest.raises(ValueError, match="both or neither"):
            broker.wait_for(records=1)
        with pytest.raises(LookupError, match="there is no topic u; there are: t"):
            broker.topic("u").records()


def test_an_error_is_shown_where_it_was_raised_and_not_how_it_got_here() -> None:
    with BrokerThread() as broker:
        broker.topic("t").create()
        for call in (
            lambda: broker.topic("t").records(9),
            lambda: broker.topic("t").append("x", partition=9),
        ):
            with pytest.raises(LookupError) as caught:
                call()
            files = [Path(entry.path).name for entry in caught.traceback]
            assert "_base.py" not in files
            shown = [Path(entry.path).name for entry in caught.traceback.filter(caught)]
            assert shown[:3] == [Path(__file__).name, Path(__file__).name, "embedding.py"]
        with pytest.raises(WaitTimedOut) as timed_out:
            broker.wait_for(records=1, topic="t", timeout=0.01)
        shown = [Path(entry.path).name for entry in timed_out.traceback.filter(timed_out)]
        assert shown == [Path(__file__).name]


async def test_a_coroutine_waits_for_a_broker_in_a_thread_without_stopping_its_loop() -> None:
    with BrokerThread() as broker:
        waiting = asyncio.create_task(broker.wait_for_async(records=1, topic="t"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        broker.topic("t").append("now")
        assert [record.value for record in await waiting] == [b"now"]


def test_a_broker_on_a_loop_is_not_for_another_one() -> None:
    async def use(broker: Broker) -> None:
        for call in (broker.topic("t").append("x"), broker.restart(), broker.stop()):
            with pytest.raises(NotRunning, match="and this is another one; BrokerThread"):
                await call

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    with closing(first), closing(second):
        broker = Broker()
        first.run_until_complete(broker.start())
        second.run_until_complete(use(broker))
        assert broker.topics == []
        first.run_until_complete(broker.stop())


def test_a_forked_process_is_told_at_once_that_the_broker_is_not_in_it() -> None:
    with BrokerThread() as broker:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            told = b"nothing"
            try:
                broker.topic("t").append("x")
            except NotRunning as error:
                told = str(error).encode()
            broker.stop()
            os.write(write, told)
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        assert b"forked from" in os.read(read, 1000)
        os.close(read)
        assert broker.topic("t").append("x").offset == 0


@pytest.mark.parametrize(("port", "nodes"), [(-1, 1), (65536, 1), (65534, 3)])
def test_a_port_that_is_none_is_refused(port: int, nodes: int) -> None:
    with pytest.raises(ValueError, match="ports are 0"):
        Broker(port=port, nodes=nodes)


def test_a_topic_without_partitions_is_refused() -> None:
    with (
        BrokerThread() as broker,
        pytest.raises(KafkaError, match="INVALID_PARTITIONS: 0 partitions"),
    ):
        broker.topic("t").create(partitions=0)


def test_a_version_that_is_a_number_is_refused() -> None:
    # 3.10 would be 3.1.
    with pytest.raises(TypeError, match=r"kafka_version=2\.8 is not str or None"):
        Broker(kafka_version=2.8)  # type: ignore[arg-type]
