"""The command line, and the client below it, against a real broker process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from asyncbroker.__main__ import cli
from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import MAX_TIMESTAMP, latest_offsets, list_offsets
from asyncbroker.client.producer import Producer
from asyncbroker.client.reader import Reader
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Compression, batches, records_of
from compat_tests.conftest import BrokerProcess

Fresh = Callable[[str], str]
Run = Callable[..., Result]

T0 = 1_600_000_000_000
MEMBER_SECONDS_MAX = 30


@pytest.fixture
def run(bootstrap_servers: str) -> Run:
    """Runs a command with this input; it has to end with this status."""

    def run(*arguments: str, input: str | bytes = "", status: int = 0) -> Result:
        environment = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers}
        result = CliRunner().invoke(cli, arguments, input=input, env=environment)
        assert result.exit_code == status, result.output
        # A SystemExit is how click ends; anything else would be a traceback for the user.
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


def as_json(result: Result) -> Any:
    return json.loads(result.stdout)


def lines_as_json(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_is_created_listed_described_changed_and_deleted(run: Run, fresh: Fresh) -> None:
    topic = fresh("life")
    created = run("topics", "create", topic, "-p", "3", "-c", "retention.ms=86400000")
    assert created.stdout == f"created {topic}\n"
    listed = {row["topic"]: row for row in as_json(run("topics", "list", "--json"))}
    assert listed[topic] == {"topic": topic, "partitions": 3, "replicas": 1}

    run("produce", topic, "-p", "2", input="one\ntwo\n")
    described = as_json(run("topics", "describe", topic, "--json"))[0]
    assert described["configs"]["retention.ms"] == "86400000"
    ends = [(row["partition"], row["earliest"], row["latest"]) for row in described["partitions"]]
    assert ends == [(0, 0, 0), (1, 0, 0), (2, 0, 2)]
    assert len(described["topic_id"]) == 22

    run("topics", "alter", topic, "-c", "retention.ms=1000", "-c", "max.message.bytes=2000")
    run("topics", "alter", topic, "--delete-config", "retention.ms")
    described = as_json(run("topics", "describe", topic, "--json"))[0]
    assert described["configs"]["max.message.bytes"] == "2000"
    assert "retention.ms" not in described["configs"]

    run("topics", "alter", topic, "--partitions", "4")
    described = as_json(run("topics", "describe", topic, "--json"))[0]
    ends = [(row["partition"], row["earliest"], row["latest"]) for row in described["partitions"]]
    assert ends == [(0, 0, 0), (1, 0, 0), (2, 0, 2), (3, 0, 0)]
    fewer = run("topics", "alter", topic, "--partitions", "2", status=1)
    assert "INVALID_PARTITIONS" in fewer.stderr

    assert run("topics", "delete", topic).stdout == f"deleted {topic}\n"
    assert topic not in run("topics", "list").stdout


def test_a_table_of_partitions_is_printed_for_people(run: Run, fresh: Fresh) -> None:
    topic = fresh("table")
    run("topics", "create", topic)
    head, columns, row = run("topics", "describe", topic).stdout.splitlines()
    assert head.startswith(f"{topic}  id ")
    assert columns.split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "EARLIEST", "LATEST"]
    assert row.split()[0] == "0"


def test_mistakes_about_topics_are_told_without_a_traceback(run: Run, fresh: Fresh) -> None:
    topic = fresh("mistake")
    run("topics", "create", topic)
    assert "TOPIC_ALREADY_EXISTS" in run("topics", "create", topic, status=1).stderr
    assert "exists already" in run("topics", "create", topic, "--if-not-exists").stdout
    wrong = run("topics", "create", fresh("config"), "-c", "nosuch=1", status=1)
    assert "INVALID_CONFIG" in wrong.stderr
    assert "INVALID_TOPIC_EXCEPTION" in run("topics", "create", "a/b", status=1).stderr
    missing = fresh("missing")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run("topics", "delete", missing, status=1).stderr
    assert "does not exist" in run("topics", "delete", missing, "--if-exists").stdout
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run("topics", "describe", missing, status=1).stderr
    assert "nothing to change" in run("topics", "alter", topic, status=2).stderr


# --- produce and consume --------------------------------------------------------------------------


def test_lines_come_back_in_order(run: Run, fresh: Fresh) -> None:
    topic = fresh("lines")
    run("topics", "create", topic)
    lines = [f"line {number}" for number in range(5000)]
    written = run("produce", topic, input="\n".join(lines))
    assert written.stderr == f"5000 records written to {topic}\n"
    assert run("consume", topic, "-e").stdout.splitlines() == lines
    assert run("consume", topic, "-n", "2").stdout.splitlines() == lines[:2]
    assert run("consume", topic, "-e", "-f", "4998").stdout.splitlines() == lines[4998:]
    assert run("consume", topic, "-e", "-f", "-1").stdout.splitlines() == lines[-1:]
    assert run("consume", topic, "-e", "-f", "latest").stdout == ""


@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Compression])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_codec_and_every_acks(run: Run, fresh: Fresh, codec: str, acks: str) -> None:
    topic = fresh("codec")
    run("topics", "create", topic)
    run("produce", topic, "-z", codec, "-a", acks, "-K", "=", "-H", "from=test", input="k=v=w\n")
    (record,) = lines_as_json(run("consume", topic, "-n", "1", "--json"))
    assert (record["key"], record["value"]) == ("k", "v=w")
    assert record["headers"] == [["from", "test"]]


def test_json_that_was_consumed_can_be_produced(run: Run, fresh: Fresh) -> None:
    first, second = fresh("first"), fresh("second")
    run("topics", "create", first, second, "-p", "2")
    records: list[dict[str, Any]] = [
        {"partition": 0, "timestamp": T0, "key": None, "value": "a", "headers": []},
        {"partition": 1, "timestamp": T0 + 1, "key": "ü", "value": None, "headers": [["h", None]]},
        {"partition": 1, "timestamp": T0 + 2, "key": "", "value": {"base64": "/w=="}},
    ]
    run("produce", first, "--json", input="\n".join(map(json.dumps, records)))
    copied = run("consume", first, "-e", "--json").stdout
    run("produce", second, "--json", input=copied)
    there = lines_as_json(run("consume", second, "-e", "--json"))
    there.sort(key=lambda record: record["timestamp"])
    kept = [{key: record[key] for key in ("partition", "timestamp", "value")} for record in there]
    assert kept == [
        {key: record[key] for key in ("partition", "timestamp", "value")} for record in records
    ]
    assert [record["key"] for record in there] == [None, "ü", ""]


def test_reading_begins_at_a_time(run: Run, fresh: Fresh) -> None:
    topic = fresh("times")
    run("topics", "create", topic)
    lines = [json.dumps({"timestamp": T0 + n * 1000, "value": str(n)}) for n in range(5)]
    run("produce", topic, "--json", input="\n".join(lines))
    assert run("consume", topic, "-e", "-f", f"@{T0 + 2001}").stdout == "3\n4\n"
    # T0 is 12:26:40.
    assert run("consume", topic, "-e", "-f", "@2020-09-13T12:26:44Z").stdout == "4\n"
    assert run("consume", topic, "-e", "-f", f"@{T0 + 5000}").stdout == ""


def test_nulls_and_single_partitions(run: Run, fresh: Fresh) -> None:
    topic = fresh("nulls")
    run("topics", "create", topic, "-p", "2")
    run("produce", topic, "-p", "1", "--null", "NULL", input="NULL\nvalue\n")
    values = [record["value"] for record in lines_as_json(run("consume", topic, "-e", "--json"))]
    assert values == [None, "value"]
    assert run("consume", topic, "-e", "-p", "0").stdout == ""
    assert run("consume", topic, "-e", "-p", "1").stdout == "null\nvalue\n"


def test_mistakes_about_records_are_told_without_a_traceback(run: Run, fresh: Fresh) -> None:
    topic = fresh("mistake")
    run("topics", "create", topic)
    assert (
        "line 2 has no key" in run("produce", topic, "-K", ":", input="k:v\nv\n", status=1).stderr
    )
    # What came before the mistake is written.
    assert run("consume", topic, "-e").stdout == "v\n"
    assert "line 1: " in run("produce", topic, "--json", input="{}", status=1).stderr
    assert (
        "the topic has 1 partitions"
        in run("produce", topic, "-p", "7", input="x\n", status=1).stderr
    )
    assert "there is no" in run("consume", topic, "-p", "7", status=2).stderr
    assert "is no position" in run("consume", topic, "-f", "soon", status=2).stderr
    out_of_range = run("consume", topic, "-f", "99", status=1).stderr
    assert "OFFSET_OUT_OF_RANGE: offset 99 is not in the log" in out_of_range
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run("consume", fresh("missing"), status=1).stderr


def test_a_record_that_is_too_large_is_refused(run: Run, fresh: Fresh) -> None:
    topic = fresh("large")
    run("topics", "create", topic, "-c", "max.message.bytes=1000")
    assert "MESSAGE_TOO_LARGE" in run("produce", topic, input="x" * 2000, status=1).stderr


def test_consume_waits_for_more_until_it_is_interrupted(
    bootstrap_servers: str, run: Run, fresh: Fresh
) -> None:
    topic = fresh("follow")
    run("topics", "create", topic)
    run("produce", topic, input="before\n")
    command = [sys.executable, "-m", "asyncbroker", "consume", topic, "-b", bootstrap_servers]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "before\n"
    run("produce", topic, input="after\n")
    assert process.stdout.readline() == "after\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, "")
    assert errors == f"2 records read from {topic}\n"


def test_nobody_at_the_address_is_told_quickly(run: Run) -> None:
    refused = run("topics", "list", "-b", "127.0.0.1:1", status=1)
    assert "cannot connect to 127.0.0.1:1: Connection refused" in refused.stderr


# --- groups ---------------------------------------------------------------------------------------


@pytest.fixture
def member(bootstrap_servers: str) -> Iterator[Callable[..., Callable[[], None]]]:
    """Starts members of groups that heartbeat until the test ends or calls their `stop`."""
    stops: list[Callable[[], None]] = []

    def start(topic: str, group: str) -> Callable[[], None]:
        ended = threading.Event()
        assigned = threading.Event()

        def work() -> None:
            consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap_servers,
                    "group.id": group,
                    "client.id": "counter",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            consumer.subscribe([topic])
            while not ended.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    consumer.commit(message=message, asynchronous=False)
                if consumer.assignment():
                    assigned.set()
            consumer.close()

        thread = threading.Thread(target=work)
        thread.start()

        def stop() -> None:
            ended.set()
            thread.join()

        stops.append(stop)
        assert assigned.wait(MEMBER_SECONDS_MAX)
        return stop

    yield start
    for stop in stops:
        stop()


def wait_for(condition: Callable[[], bool]) -> None:
    """Compat tests may wait for what another program does."""
    pause = threading.Event()
    for _ in range(MEMBER_SECONDS_MAX * 10):
        if condition():
            return
        pause.wait(0.1)
    raise AssertionError("waited in vain")


def test_a_group_with_a_member_is_shown_and_not_touched(
    run: Run, fresh: Fresh, member: Callable[..., Callable[[], None]]
) -> None:
    topic, group = fresh("orders"), fresh("counters")
    run("topics", "create", topic, "-p", "2")
    run("produce", topic, "-p", "0", input="a\nb\nc\n")
    stop = member(topic, group)

    def described() -> Any:
        return as_json(run("groups", "describe", group, "--json"))

    wait_for(lambda: described()["partitions"][0]["committed"] == 3)
    shown = described()
    assert (shown["state"], shown["protocol_type"]) == ("Stable", "consumer")
    assert [row["client_id"] for row in shown["members"]] == ["counter"]
    assert shown["members"][0]["partitions"] == [f"{topic}-0", f"{topic}-1"]
    first, second = shown["partitions"]
    assert (first["topic"], first["end"], first["lag"]) == (topic, 3, 0)
    assert (second["partition"], second["end"]) == (1, 0)
    assert second["member_id"] == shown["members"][0]["member_id"]

    table = run("groups", "describe", group).stdout
    assert f"group {group}  state Stable  protocol " in table
    assert "counter" in table
    listed = {row["group"]: row["state"] for row in as_json(run("groups", "list", "--json"))}
    assert listed[group] == "Stable"
    assert "stop its members" in run("groups", "reset", group, "--to-earliest", status=1).stderr
    assert "NON_EMPTY_GROUP" in run("groups", "delete", group, status=1).stderr

    stop()
    assert described()["state"] == "Empty"
    run("groups", "delete", group)
    assert "there is no group" in run("groups", "describe", group, status=1).stderr


def offsets_after(result: Result) -> list[int]:
    return [row["after"] for row in as_json(result)]


def test_offsets_are_reset(run: Run, fresh: Fresh, bootstrap_servers: str) -> None:
    topic, group = fresh("resets"), fresh("resetters")
    run("topics", "create", topic, "-p", "2")
    lines = [json.dumps({"partition": 0, "timestamp": T0 + n, "value": str(n)}) for n in range(10)]
    run("produce", topic, "--json", input="\n".join(lines))
    assert "has committed nothing" in run("groups", "reset", group, "--to-latest", status=2).stderr

    def reset(*arguments: str) -> list[int]:
        return offsets_after(run("groups", "reset", group, "--json", *arguments))

    assert reset("-t", topic, "--to-latest") == [10, 0]
    assert reset("--shift-by", "-4") == [6, 0]
    assert reset("--to-earliest", "--dry-run") == [0, 0]
    assert reset("--to-time", str(T0 + 7)) == [7, 0]
    assert reset("-t", f"{topic}:0", "--to-offset", "99") == [10]
    assert reset("-t", f"{topic}:0", "--to-offset", "3") == [3]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group)
    committed = consumer.committed(KafkaPythonPartition(topic, 0))
    consumer.close()
    assert committed == 3

    assert "give one of" in run("groups", "reset", group, status=2).stderr
    both = run("groups", "reset", group, "--to-latest", "--to-earliest", status=2)
    assert "give one of" in both.stderr
    assert (
        "there is no"
        in run("groups", "reset", group, "-t", f"{topic}:5", "--to-latest", status=2).stderr
    )
    run("groups", "delete", group)


def test_consume_goes_on_where_the_group_has_got_to(run: Run, fresh: Fresh) -> None:
    topic, group = fresh("parts"), fresh("reader")
    run("topics", "create", topic)
    run("produce", topic, input="1\n2\n3\n4\n")
    assert run("consume", topic, "-g", group, "-n", "3").stdout == "1\n2\n3\n"
    shown = as_json(run("groups", "describe", group, "--json"))
    assert [(row["committed"], row["lag"]) for row in shown["partitions"]] == [(3, 1)]
    assert run("consume", topic, "-g", group, "-e").stdout == "4\n"


# --- the client, where the broker is restarted ----------------------------------------------------


def read_values(reader: Reader) -> list[bytes | None]:
    values = []
    for fetched in reader.poll():
        for header, batch in batches(fetched.records):
            for record in records_of(batch, header):
                if record.offset >= fetched.position:
                    values.append(record.value)
    return values


def test_reader_and_producer_outlive_a_broker_that_is_killed(own_broker: BrokerProcess) -> None:
    with Cluster(own_broker.bootstrap_servers, timeout_ms=30_000) as cluster:
        create_topic(cluster, "flights", partitions=1)
        flights = TopicPartition("flights", 0)
        producer = Producer(cluster, "flights")
        reader = Reader(cluster, {flights: 0}, max_wait_ms=100)
        read: list[bytes | None] = []
        for start in range(0, 300, 100):
            for number in range(start, start + 100):
                producer.send(b"%d" % number)
            producer.flush()
            while len(read) < start + 100:
                read += read_values(reader)
            own_broker.kill()
            own_broker.start()
        reader.close()
        producer.close()
        assert read == [b"%d" % number for number in range(300)]
        assert latest_offsets(cluster, [flights]) == {flights: 300}
        newest = list_offsets(cluster, {flights: MAX_TIMESTAMP})[flights]
        assert newest.timestamp > 0
