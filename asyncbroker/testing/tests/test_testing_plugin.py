"""The pytest plugin, in runs of pytest of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncbroker.testing.tests.testing_harness import run_pytest

PLUGIN = "asyncbroker.testing.plugin"


def test_a_start_of_pytest_does_not_import_the_broker(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        f"""
        import sys

        def test_nothing():
            assert "{PLUGIN}" in sys.modules
            loaded = {{name for name in sys.modules if name.startswith("asyncbroker.")}}
            assert loaded == {{"asyncbroker.testing", "{PLUGIN}"}}
            assert "uvloop" not in sys.modules
        """,
    )
    assert result.returncode == 0, result.stdout


def test_fixtures_serve_plain_and_asyncio_tests(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        """
        import pytest
        from aiokafka import AIOKafkaProducer
        from confluent_kafka import Producer

        def test_plain(kafka_broker, kafka_topic):
            assert kafka_topic.startswith("test_plain-")
            producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
            producer.produce(kafka_topic, b"x")
            assert producer.flush(10) == 0
            assert len(kafka_broker.topic(kafka_topic).records()) == 1

        @pytest.mark.asyncio
        async def test_asyncio(kafka_broker, kafka_topic):
            servers = kafka_broker.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                await producer.send_and_wait(kafka_topic, b"x")
            await kafka_broker.wait_for_async(records=1, topic=kafka_topic)

        @pytest.mark.parametrize("name", ["a/b", "c d"])
        def test_shared(kafka_broker_session, kafka_topic, name):
            topics = kafka_broker_session.topics
            assert kafka_topic in topics
            assert all(topic.startswith("test_shared-") for topic in topics)
        """,
    )
    assert result.returncode == 0, result.stdout
    assert "4 passed" in result.stdout


def test_fixtures_serve_tests_of_anyio(tmp_path: Path) -> None:
    pytest.importorskip("anyio")
    result = run_pytest(
        tmp_path,
        """
        import pytest
        from aiokafka import AIOKafkaProducer

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        async def test_anyio(kafka_broker, kafka_topic):
            servers = kafka_broker.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                await producer.send_and_wait(kafka_topic, b"x")
            await kafka_broker.wait_for_async(records=1, topic=kafka_topic)
        """,
    )
    assert "1 passed" in result.stdout, result.stdout


def test_settings_come_from_ini_and_markers_the_nearest_last(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nkafka_settings =\n    num.partitions=2\n    message.max.bytes=5000\n"
    )
    result = run_pytest(
        tmp_path,
        """
        import pytest

        pytestmark = pytest.mark.kafka(num_partitions=3)

        def partitions(broker, topic):
            for index in range(10):
                try:
                    broker.topic(topic).append("x", partition=index)
                except LookupError:
                    return index

        def test_module(kafka_broker, kafka_topic):
            assert partitions(kafka_broker, kafka_topic) == 3

        @pytest.mark.kafka({"num.partitions": 4})
        def test_function(kafka_broker, kafka_topic):
            assert partitions(kafka_broker, kafka_topic) == 4

        def test_session(kafka_broker_session, kafka_topic):
            assert partitions(kafka_broker_session, kafka_topic) == 2

        @pytest.mark.kafka(num_partition=4)
        def test_mistaken(kafka_broker):
            pass
        """,
        "--strict-markers",
    )
    assert "3 passed, 1 error" in result.stdout, result.stdout
    assert "did you mean num.partitions" in result.stdout


def test_the_marker_says_what_the_broker_is_like(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.mark.kafka(nodes=3, kafka_version="2.8", directory=True, num_partitions=2)
        def test_all(kafka_broker, kafka_topic, tmp_path):
            assert len(kafka_broker.nodes) == 3
            assert (tmp_path / "kafka" / f"{kafka_topic}-1").is_dir()

        @pytest.mark.kafka(directory=True)
        class TestClass:
            @pytest.mark.kafka(directory=False)
            def test_memory(self, kafka_broker, tmp_path):
                assert list(tmp_path.iterdir()) == []
        """,
    )
    assert "2 passed" in result.stdout, result.stdout


def test_a_wrong_marker_is_a_mistake_of_its_test_alone(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.mark.kafka(num_partitions=3)
        def test_shared(kafka_broker_session):
            pass

        @pytest.mark.kafka("num.partitions=3")
        def test_no_dict(kafka_broker):
            pass

        @pytest.mark.kafka(num_partition=3)
        def test_no_setting(kafka_broker):
            pass

        @pytest.mark.kafka(nodes="3")
        def test_no_number(kafka_broker):
            pass

        def test_right(kafka_broker):
            pass
        """,
    )
    assert "1 passed, 4 errors" in result.stdout, result.stdout
    assert "@pytest.mark.kafka is about kafka_broker, a broker of the test's own" in result.stdout
    assert "@pytest.mark.kafka takes a dict of settings, not 'num.partitions=3'" in result.stdout
    for told in ("num.partition: there is no such setting; did you mean", "nodes='3' is not int"):
        assert f"kafka_broker cannot be as it should: {told}" in result.stdout
    assert "plugin.py" not in result.stdout


def test_names_of_tests_that_share_a_broker_begin_differently(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_one(kafka_broker_session, kafka_prefix, kafka_topic, number):
            assert kafka_topic.startswith(kafka_prefix)
            kafka_broker_session.topic(kafka_prefix + "orders").create()
            mine = [name for name in kafka_broker_session.topics if name.startswith(kafka_prefix)]
            assert sorted(mine) == [kafka_prefix + "orders", kafka_topic]
        """,
    )
    assert "3 passed" in result.stdout, result.stdout


def test_faults_of_a_shared_broker_end_with_the_test_and_a_stopped_one_is_no_error(
    tmp_path: Path,
) -> None:
    result = run_pytest(
        tmp_path,
        """
        def test_first(kafka_broker_session):
            kafka_broker_session.faults.on().drop_connection()

        def test_second(kafka_broker_session):
            assert len(kafka_broker_session.faults) == 0

        def test_stopping(kafka_broker):
            kafka_broker.stop()
            assert False
        """,
    )
    assert "1 failed, 2 passed" in result.stdout, result.stdout
    assert "the groups cannot be looked at: the broker does not run" in result.stdout


def test_a_failure_shows_the_requests_and_groups_of_its_test_alone(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        """
        from confluent_kafka import Consumer, Producer
        from asyncbroker.testing import ErrorCode

        def test_before(kafka_broker_session):
            kafka_broker_session.topic("before").append("x")
            produce(kafka_broker_session, "before")

        def produce(broker, topic):
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce(topic, b"x")
            assert producer.flush(10) == 0

        def test_failing(kafka_broker_session):
            broker = kafka_broker_session
            broker.faults.on(api="Produce", times=1).error(ErrorCode.REQUEST_TIMED_OUT)
            produce(broker, "t")
            consumer = Consumer({
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            })
            consumer.subscribe(["t"])
            assert consumer.poll(10).value() == b"x"
            consumer.commit(asynchronous=False)
            try:
                assert broker.group("g").offsets == {}
            finally:
                consumer.close()
        """,
    )
    assert "1 failed, 1 passed" in result.stdout, result.stdout
    _, _, section = result.stdout.partition("requests of the Kafka broker")
    assert "Produce v" in section
    assert "REQUEST_TIMED_OUT [fault: error REQUEST_TIMED_OUT]" in section
    assert "group g: Empty, generation" in section
    assert "committed t-0: 1" in section
    assert "before" not in section.partition("short test summary")[0]


def test_workers_of_xdist_do_not_share_a_broker(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    result = run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_one(kafka_broker_session, kafka_topic, number):
            kafka_broker_session.topic(kafka_topic).append(str(number))
            values = [r.value for r in kafka_broker_session.topic(kafka_topic).records()]
            assert values == [str(number).encode()]

        @pytest.mark.kafka(nodes=2)
        def test_own(kafka_broker, kafka_topic):
            assert kafka_broker.topics == [kafka_topic]

        @pytest.mark.asyncio
        async def test_coroutine(kafka_broker_session, kafka_topic):
            kafka_broker_session.topic(kafka_topic).append("x")
            await kafka_broker_session.wait_for_async(records=1, topic=kafka_topic)
        """,
        "-n",
        "2",
        "-W",
        "default",
    )
    assert "8 passed" in result.stdout, result.stdout


def test_the_trace_option_shows_what_it_chooses(tmp_path: Path) -> None:
    text = """
        from confluent_kafka import Producer

        def test_it(kafka_broker, kafka_topic):
            producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
            producer.produce(kafka_topic, b"x")
            assert producer.flush(10) == 0
        """
    result = run_pytest(tmp_path, text, "-s", "--kafka-trace=api=Produce")
    assert "rdkafka test_it-" in result.stderr, result.stdout
    assert "Metadata" not in result.stderr
    result = run_pytest(tmp_path, text, "--kafka-trace=nonsense")
    assert "--kafka-trace: 'nonsense'" in result.stdout
