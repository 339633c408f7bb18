"""Apache Kafka's own command-line classes, and with them its Java client, against the broker.

A JVM takes a second or two to say anything, so only what a test is about is asked of one.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.topics import create_topic
from compat_tests.conftest import BrokerProcess
from compat_tests.java import TOOLS, java, needs_jars, run_java, run_tool

Fresh = Callable[[str], str]

pytestmark = [pytest.mark.timeout(300), needs_jars]


def create(servers: str, topic: str, partitions: int) -> None:
    """Creates a topic, without a JVM."""
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=partitions, replication_factor=1)


def consume(servers: str, topic: str, count: int, *arguments: str) -> list[str]:
    output = run_tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "30000", *arguments),
    )
    return [line for line in output.split("\n") if line]


def test_topics_are_created_described_altered_and_deleted(
    bootstrap_servers: str, fresh: Fresh
) -> None:
    topic = fresh("java-topic")
    servers = ("--bootstrap-server", bootstrap_servers)
    wanted = ("--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=60000")
    run_tool("TopicCommand", *servers, "--create", "--topic", topic, *wanted)
    described = run_tool("TopicCommand", *servers, "--describe", "--topic", topic)
    assert re.search(r"PartitionCount:\s*3", described)
    assert "retention.ms=60000" in described
    assert topic in run_tool("TopicCommand", *servers, "--list").split()
    run_tool("TopicCommand", *servers, "--delete", "--topic", topic)
    assert topic not in run_tool("TopicCommand", *servers, "--list").split()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(bootstrap_servers: str, fresh: Fresh, codec: str) -> None:
    topic = fresh("java-console")
    create(bootstrap_servers, topic, 1)
    lines = [f"trace:{n}\tkey-{n}\tvalue {n}" for n in range(100)]
    run_tool(
        "ConsoleProducer",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic),
        *("--compression-codec", codec),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
        stdin="\n".join([*lines, "trace:x\tkey-null\tNULL"]) + "\n",
    )
    printed = ("print.key=true", "print.headers=true", "print.offset=true", "print.timestamp=true")
    properties = [part for name in printed for part in ("--formatter-property", name)]
    got = consume(bootstrap_servers, topic, 101, *properties)
    assert len(got) == 101
    for n, line in enumerate(got[:100]):
        timestamp, offset, headers, key, value = line.split("\t")
        assert (offset, headers, key, value) == (
            f"Offset:{n}",
            f"trace:{n}",
            f"key-{n}",
            f"value {n}",
        )
        assert re.fullmatch(r"CreateTime:\d{13}", timestamp)
    assert got[100].endswith("key-null\tnull")


class VerifiableConsumer:
    """Kafka's VerifiableConsumer: a group member that prints what happens to it as JSON lines."""

    def __init__(self, servers: str, topic: str, group: str, assignor: str) -> None:
        self._process = subprocess.Popen(
            java(
                f"{TOOLS}.VerifiableConsumer",
                *("--bootstrap-server", servers, "--topic", topic, "--group-id", group),
                *("--reset-policy", "earliest", "--session-timeout", "6000"),
                *("--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.assigned: set[int] = set()
        self.consumed = 0

    def events(self) -> Iterator[dict[str, object]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            match event["name"]:
                case "partitions_assigned":
                    self.assigned |= {p["partition"] for p in event["partitions"]}
                case "partitions_revoked":
                    self.assigned -= {p["partition"] for p in event["partitions"]}
                case "records_consumed":
                    self.consumed += event["count"]
            yield event

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in self.events():
            if condition():
                return
        raise AssertionError("the consumer ended before the condition was reached")

    def close(self) -> None:
        self._process.terminate()
        for _ in self.events():
            pass
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_group_of_java_consumers(bootstrap_servers: str, fresh: Fresh, assignor: str) -> None:
    topic, group = fresh("java-group"), fresh("group")
    create(bootstrap_servers, topic, 4)
    first = VerifiableConsumer(bootstrap_servers, topic, group, assignor)
    first.until(lambda: first.assigned == {0, 1, 2, 3})
    second = VerifiableConsumer(bootstrap_servers, topic, group, assignor)
    second.until(lambda: len(second.assigned) == 2)
    first.until(lambda: len(first.assigned) == 2)
    assert first.assigned | second.assigned == {0, 1, 2, 3}
    run_tool(
        "VerifiableProducer",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic),
        *("--max-messages", "400", "--acks", "-1"),
    )
    described = run_tool(
        "consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", bootstrap_servers, "--describe", "--group", group, "--members"),
    )
    assert described.count("consumer-") >= 2
    second.close()
    first.until(lambda: first.assigned == {0, 1, 2, 3})
    first.close()
    assert first.consumed + second.consumed == 400


def test_groups_are_listed_described_and_reset(bootstrap_servers: str, fresh: Fresh) -> None:
    topic, group = fresh("java-lag"), fresh("group")
    create(bootstrap_servers, topic, 1)
    producer = ("--bootstrap-server", bootstrap_servers, "--topic", topic)
    run_tool("ConsoleProducer", *producer, stdin="".join(f"{n}\n" for n in range(10)))
    consume(bootstrap_servers, topic, 10, "--group", group)
    command = "consumer.group.ConsumerGroupCommand"
    servers = ("--bootstrap-server", bootstrap_servers)
    assert group in run_tool(command, *servers, "--list").split()
    reset = ("--reset-offsets", "--to-offset", "4", "--topic", topic, "--execute")
    run_tool(command, *servers, "--group", group, *reset)
    described = run_tool(command, *servers, "--describe", "--group", group)
    row = next(line.split() for line in described.split("\n") if f" {topic} " in line)
    current, end, lag = row[row.index(topic) + 2 :][:3]
    assert (current, end, lag) == ("4", "10", "6")
    run_tool(command, *servers, "--delete", "--group", group)
    assert group not in run_tool(command, *servers, "--list").split()


def test_offsets_by_time(bootstrap_servers: str, fresh: Fresh) -> None:
    topic = fresh("java-offsets")
    create(bootstrap_servers, topic, 1)
    producer = ("--bootstrap-server", bootstrap_servers, "--topic", topic)
    run_tool("ConsoleProducer", *producer, stdin="".join(f"{n}\n" for n in range(10)))
    for time, offset in (("-1", "10"), ("-2", "0"), ("1000", "0"), ("-3", None)):
        found = run_tool("GetOffsetShell", *producer, "--time", time).strip().split(":")
        assert found[:2] == [topic, "0"]
        assert offset is None or found[2] == offset


def test_records_of_a_java_producer_survive_a_kill(own_broker: BrokerProcess, fresh: Fresh) -> None:
    topic = fresh("java-kill")
    servers = own_broker.bootstrap_servers
    create(servers, topic, 1)
    producer = ("--bootstrap-server", servers, "--topic", topic)
    acks = ("--producer-property", "acks=all")
    run_tool("ConsoleProducer", *producer, *acks, stdin="".join(f"{n}\n" for n in range(100)))
    own_broker.kill()
    own_broker.start()
    assert consume(servers, topic, 100) == [str(n) for n in range(100)]


def config_command(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    servers = ("--bootstrap-server", address)
    return run_java("kafka.admin.ConfigCommand", *servers, "--entity-type", "brokers", *arguments)


def test_settings_of_brokers_have_their_source_and_outlive_a_kill(
    own_broker: BrokerProcess,
) -> None:
    name, one, every = "message.max.bytes", ("--entity-name", "1"), ("--entity-default",)
    for entity, size in ((one, 2_000_000), (every, 3_000_000)):
        change = ("--alter", "--add-config", f"{name}={size}")
        altered = config_command(own_broker.bootstrap_servers, *entity, *change)
        assert altered.returncode == 0, altered.stderr
    own_broker.kill()
    own_broker.start()
    assert (
        f"{name}=2000000 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{name}=2000000, "
        f"DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=3000000, DEFAULT_CONFIG:{name}=1048588}}"
        in config_command(own_broker.bootstrap_servers, *one, "--describe").stdout
    )
    removed = config_command(own_broker.bootstrap_servers, *one, "--alter", "--delete-config", name)
    assert removed.returncode == 0, removed.stderr
    assert (
        f"{name}=3000000 sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=3000000, "
        f"DEFAULT_CONFIG:{name}=1048588}}"
        in config_command(own_broker.bootstrap_servers, *one, "--describe", "--all").stdout
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("node.id=2", "InvalidRequestException"),
        # Kafka takes any name that it does not know, and does nothing with it.
        ("no.such.setting=1", "InvalidConfigurationException: no.such.setting"),
    ],
)
def test_settings_of_brokers_that_cannot_be_are_refused(
    bootstrap_servers: str, change: str, error: str
) -> None:
    refused = config_command(
        bootstrap_servers, "--entity-default", "--alter", "--add-config", change
    )
    assert refused.returncode == 1
    assert error in refused.stdout + refused.stderr
