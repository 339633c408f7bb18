"""The broker's configuration: files, assignments, mistakes and warnings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from asyncbroker import config as config_module
from asyncbroker.config import BrokerConfig, ConfigError, load_config
from asyncbroker.listeners import Listener
from asyncbroker.settings import attribute_of, broker_settings
from asyncbroker.settings_topic import INHERITED_FROM

# The file that comes with Kafka 4.3 for a node that is broker and controller, without comments.
SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kafka
num.partitions=3
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def mistakes_of(settings: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_settings(settings)
    return str(caught.value).split("\n")


def test_the_defaults_suit_one_node() -> None:
    config = BrokerConfig.from_settings()
    assert config.node_id == 1
    assert config.broker_rack is None
    assert config.data_directory is None
    assert config.offsets_topic_num_partitions == 1
    assert config.num_partitions == 1
    assert config.group_initial_rebalance_delay_ms == 3000
    assert config.auto_create_topics_enable
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.warnings == ()


def test_every_attribute_is_a_setting_that_the_broker_obeys() -> None:
    # Those made of several settings, and what is kept to describe the configuration.
    made = {"data_directory", "listeners", "options", "warnings"}
    made |= {"static", "dynamic", "dynamic_default"}
    fields = {field.name for field in dataclasses.fields(BrokerConfig)}
    assert fields - made <= {attribute_of(name) for name in broker_settings()}


def test_every_setting_that_the_broker_obeys_is_an_attribute_or_goes_into_one() -> None:
    goes_into_another = {
        "broker.id",
        *(
            f"group.consumer.{bound}.{name}"
            for bound in ("min", "max")
            for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
        ),
        "log.dir",
        "log.dirs",
        "advertised.listeners",
        "listener.security.protocol.map",
        "controller.listener.names",
        "sasl.enabled.mechanisms",
        "sasl.server.max.receive.size",
        "connections.max.reauth.ms",
        "connection.failed.authentication.delay.ms",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.retention.minutes",
        "log.retention.hours",
        # One node holds one replica, whatever they say: see `test_more_replicas_...`.
        "default.replication.factor",
        "offsets.topic.replication.factor",
    }
    fields = {field.name for field in dataclasses.fields(BrokerConfig)}
    inherited = set(INHERITED_FROM.values())
    for name in broker_settings():
        assert attribute_of(name) in fields or name in inherited | goes_into_another, name


def test_every_attribute_is_read_by_some_part_of_the_broker() -> None:
    package = Path(config_module.__file__).parent
    sources = [
        path.read_text()
        for path in [*package.glob("*.py"), *package.glob("handlers/*.py")]
        if path.name != "config.py"
    ]
    for field in dataclasses.fields(BrokerConfig):
        pattern = re.compile(rf"(config|current)\.{field.name}\b")
        assert any(pattern.search(source) for source in sources), field.name


def test_a_real_brokers_file_loads_with_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(SERVER_PROPERTIES)
    config = load_config(str(path))
    assert config.listeners == (Listener("PLAINTEXT", "", 9092, "localhost", 9092),)
    assert config.data_directory == "/var/lib/kafka"
    assert config.num_partitions == 3
    (warning,) = config.warnings
    assert "controller.quorum.bootstrap.servers, inter.broker.listener.name" in warning
    assert "num.io.threads" in warning
    assert "num.partitions" not in warning


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\r\n", encoding="utf-8-sig", newline="")
    assert load_config(str(path)).num_partitions == 3


def test_assignments_go_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nnode.id=7\n")
    config = load_config(str(path), ["num.partitions=5", "broker.rack = r1=a"])
    assert (config.num_partitions, config.node_id, config.broker_rack) == (5, 7, "r1=a")


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="must be NAME=VALUE"):
        load_config(None, ["num.partitions"])


def test_all_mistakes_are_told_at_once() -> None:
    assert mistakes_of({"num.partitions": "0", "num.partition": "1", "retention.ms": "1"}) == [
        "num.partitions=0: must be a whole number of 1 or more",
        "num.partition: there is no such setting; did you mean num.partitions?",
        "retention.ms: there is no such setting; retention.ms is a topic's, "
        "the broker's is log.retention.ms",
    ]


def test_a_wrong_value_of_a_setting_without_effect_is_a_mistake_too() -> None:
    assert mistakes_of({"num.io.threads": "many"}) == [
        "num.io.threads=many: must be a whole number of 1 or more"
    ]


def test_names_of_earlier_releases_load_with_a_warning() -> None:
    config = BrokerConfig.from_settings(
        {"zookeeper.connect": "zk:2181", "inter.broker.protocol.version": "3.5"}
    )
    assert config.warnings == (
        "settings of Kafka's without an effect here: inter.broker.protocol.version, "
        "zookeeper.connect",
    )


def test_more_replicas_than_one_node_holds_are_warned_about() -> None:
    config = BrokerConfig.from_settings(
        {
            "default.replication.factor": "3",
            "offsets.topic.replication.factor": "3",
            "min.insync.replicas": "2",
        }
    )
    assert [warning.partition(":")[0] for warning in config.warnings] == [
        "default.replication.factor=3",
        "offsets.topic.replication.factor=3",
        "min.insync.replicas=2",
    ]


def test_the_older_name_of_the_node_id_counts_when_the_newer_is_not_given() -> None:
    assert BrokerConfig.from_settings({"broker.id": "4"}).node_id == 4
    assert BrokerConfig.from_settings({"broker.id": "4", "node.id": "5"}).node_id == 5


def test_one_data_directory_is_served() -> None:
    assert BrokerConfig.from_settings({"log.dir": "a"}).data_directory == "a"
    assert BrokerConfig.from_settings({"log.dir": "a", "log.dirs": "b"}).data_directory == "b"
    assert mistakes_of({"log.dirs": "a,b"}) == ["log.dirs=a,b: one directory is served, no more"]


def test_limits_of_single_addresses_are_read() -> None:
    config = BrokerConfig.from_settings({"max.connections.per.ip.overrides": "10.0.0.1:5,[::1]:7"})
    assert config.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 7}
    assert (
        "must be a list of ADDRESS:COUNT"
        in mistakes_of({"max.connections.per.ip.overrides": "10.0.0.1"})[0]
    )


@pytest.mark.parametrize(
    ("settings", "listeners"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, [Listener("PLAINTEXT", "127.0.0.1", 0)]),
        ({"listeners": "PLAINTEXT://[::1]:9092"}, [Listener("PLAINTEXT", "::1", 9092)]),
        (
            {
                "listeners": "INTERNAL://:9092,EXTERNAL://:9094",
                "listener.security.protocol.map": "internal:plaintext,EXTERNAL:PLAINTEXT",
                "advertised.listeners": "EXTERNAL://broker.example:19094",
            },
            [
                Listener("INTERNAL", "", 9092),
                Listener("EXTERNAL", "", 9094, "broker.example", 19094),
            ],
        ),
    ],
)
def test_listeners_are_read(settings: dict[str, str], listeners: list[Listener]) -> None:
    assert list(BrokerConfig.from_settings(settings).listeners) == listeners


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        ({"listeners": "localhost:9092"}, "listeners=localhost:9092: must be NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://:70000"}, "must be NAME://HOST:PORT"),
        ({"advertised.listeners": f"PLAINTEXT://{'a' * 256}:1"}, "no host has so long a name"),
        ({"listeners": "A://:1"}, "listener.security.protocol.map has no protocol for it"),
        (
            {"listeners": "SASL_SSL://:9092"},
            "ssl.keystore.location: listener SASL_SSL needs",
        ),
        (
            {"listeners": "SSL://:9092", "ssl.keystore.location": "k", "ssl.keystore.type": "JKS"},
            "ssl.keystore.type=JKS: only PEM is served",
        ),
        (
            {
                "listeners": "SSL://:9092",
                "ssl.keystore.location": "k",
                "ssl.client.auth": "required",
            },
            "ssl.client.auth=required: listener SSL needs ssl.truststore.location",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "sasl.enabled.mechanisms=GSSAPI: only",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": ""},
            "sasl.enabled.mechanisms: listener SASL_PLAINTEXT needs one",
        ),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "there are two listeners PLAINTEXT"),
        ({"listeners": "PLAINTEXT://:1", "controller.listener.names": "PLAINTEXT"}, "none for"),
        ({"listener.security.protocol.map": "A:TLS"}, "must be NAME:PROTOCOL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "need an address that they can"),
        ({"advertised.listeners": "OTHER://a:1"}, "OTHER: not one of the listeners"),
    ],
)
def test_listeners_that_cannot_be_served_are_mistakes(
    settings: dict[str, str], mistake: str
) -> None:
    assert mistake in mistakes_of(settings)[0]


def test_dynamic_settings_go_before_static_ones() -> None:
    config = BrokerConfig.from_settings({"max.connections": "10", "num.partitions": "4"})
    changed = config.with_dynamic(
        dynamic={"max.connections": "30"}, dynamic_default={"max.connections": "20"}
    )
    assert changed.max_connections == 30
    assert changed.num_partitions == 4
    assert changed.with_dynamic(dynamic={}, dynamic_default={}).max_connections == 10
