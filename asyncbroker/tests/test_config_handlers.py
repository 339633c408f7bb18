"""DescribeConfigs and IncrementalAlterConfigs, as Apache Kafka 4.3 answers them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from asyncbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from asyncbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from asyncbroker.tests.data_path_harness import UnderTest, under_test

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def describe(
    test: UnderTest, type: int, name: str, keys: list[str] | None = None, **fields: Any
) -> DescribeConfigsResult:
    version = fields.pop("version", 4)
    request = DescribeConfigsRequest([DescribeConfigsResource(type, name, keys)], **fields)
    response: DescribeConfigsResponse = await test.ask(request, version)
    (result,) = response.results
    return result


async def describe_one(
    test: UnderTest, type: int, name: str, key: str, **fields: Any
) -> DescribeConfigsResourceResult:
    result = await describe(test, type, name, [key], **fields)
    (config,) = result.configs
    return config


async def alter(
    test: UnderTest,
    type: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> ErrorCode:
    """The outcome of changes to one resource."""
    configs = [IncrementalAlterableConfig(*change) for change in changes]
    request = IncrementalAlterConfigsRequest(
        [IncrementalAlterConfigsResource(type, name, configs)], validate_only
    )
    response: IncrementalAlterConfigsResponse = await test.ask(request, 1)
    (outcome,) = response.responses
    assert (outcome.resource_type, outcome.resource_name) == (type, name)
    assert (outcome.error_code == 0) == (outcome.error_message is None)
    return ErrorCode(outcome.error_code)


# ---- describing


@pytest.mark.parametrize("keys", [None, []])
async def test_no_keys_means_all_settings(keys: list[str] | None) -> None:
    async with under_test() as test:
        await test.topic("t")
        assert len((await describe(test, TOPIC, "t", keys)).configs) == 33
        assert len((await describe(test, BROKER, "1", keys)).configs) > 340


async def test_settings_are_told_in_the_order_of_the_keys_each_once() -> None:
    async with under_test() as test:
        keys = ["num.partitions", "unknown", "default.replication.factor", "num.partitions"]
        for wanted in (keys, keys[:1:-1]):
            result = await describe(test, BROKER, str(test.broker.node_id), wanted)
            told = [config.name for config in result.configs]
            assert told == [key for key in dict.fromkeys(wanted) if key != "unknown"]


async def test_keys_that_are_no_settings_are_left_out() -> None:
    async with under_test() as test:
        await test.topic("t")
        result = await describe(test, TOPIC, "t", ["segment.ms", "nope"])
        assert [config.name for config in result.configs] == ["segment.ms"]


@pytest.mark.parametrize(
    ("type", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_resource_that_is_not_here_has_an_error_of_its_own(
    type: int, name: str, code: ErrorCode
) -> None:
    async with under_test() as test:
        await test.topic("t")
        request = DescribeConfigsRequest(
            [
                DescribeConfigsResource(type, name, None),
                DescribeConfigsResource(TOPIC, "t", ["segment.ms"]),
            ]
        )
        refused, described = (await test.ask(request, 4)).results
        assert ErrorCode(refused.error_code) is code
        assert refused.error_message
        assert refused.configs == []
        assert described.error_code == 0


@pytest.mark.parametrize(
    ("settings", "overrides", "value", "source", "is_default"),
    [
        ({}, {}, "604800000", 5, True),
        ({"log_retention_ms": "3600000"}, {}, "3600000", 4, False),
        ({"log_retention_hours": "1"}, {}, "3600000", 5, True),
        ({"log_retention_hours": "1"}, {"retention_ms": "9"}, "9", 1, False),
    ],
)
async def test_sources_are_topic_static_and_default(
    settings: dict[str, Any],
    overrides: dict[str, Any],
    value: str,
    source: int,
    is_default: bool,
) -> None:
    async with under_test(**settings) as test:
        await test.topic("t", **overrides)
        config = await describe_one(test, TOPIC, "t", "retention.ms")
        assert (config.value, config.config_source, config.is_default) == (
            value,
            source,
            is_default,
        )
        assert not config.read_only


async def test_synonyms_are_told_when_asked_for() -> None:
    async with under_test(log_retention_ms="7", log_retention_minutes="5") as test:
        await test.topic("t", retention_ms="9")
        silent = await describe_one(test, TOPIC, "t", "retention.ms")
        assert silent.synonyms == []
        config = await describe_one(test, TOPIC, "t", "retention.ms", include_synonyms=True)
        assert [(each.name, each.value, each.source) for each in config.synonyms] == [
            ("retention.ms", "9", 1),
            ("log.retention.ms", "7", 4),
            ("log.retention.minutes", "5", 4),
            ("log.retention.hours", "168", 5),
        ]


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("auto.create.topics.enable", 1),
        ("broker.rack", 2),
        ("num.partitions", 3),
        ("offsets.topic.replication.factor", 4),
        ("log.retention.ms", 5),
        ("log.cleaner.min.cleanable.ratio", 6),
        ("log.cleanup.policy", 7),
        ("principal.builder.class", 8),
        ("ssl.key.password", 9),
    ],
)
async def test_types_and_documentation_are_told(name: str, type: int) -> None:
    async with under_test() as test:
        config = await describe_one(test, BROKER, "1", name, include_documentation=True)
        assert config.config_type == type
        assert config.documentation
        assert (await describe_one(test, BROKER, "1", name)).documentation is None


async def test_passwords_are_not_told() -> None:
    async with under_test(ssl_key_password="secret") as test:
        config = await describe_one(test, BROKER, "1", "ssl.key.password", include_synonyms=True)
        assert config.is_sensitive
        assert config.value is None
        assert [synonym.value for synonym in config.synonyms] == [None]


async def test_settings_that_cannot_change_are_read_only() -> None:
    async with under_test() as test:
        assert (await describe_one(test, BROKER, "1", "node.id")).read_only
        assert not (await describe_one(test, BROKER, "1", "max.connections")).read_only


async def test_connect_finds_the_cleanup_policy_of_its_topics() -> None:
    """Report 53 of other brokers: Kafka Connect insists on it."""
    async with under_test() as test:
        await test.topic("connect-offsets", cleanup_policy="compact")
        config = await describe_one(test, TOPIC, "connect-offsets", "cleanup.policy")
        assert config.value == "compact"


# ---- altering


async def value_of(test: UnderTest, key: str, type: int = TOPIC, name: str = "t") -> str | None:
    return (await describe_one(test, type, name, key)).value


async def test_set_and_delete_touch_only_what_they_name() -> None:
    async with under_test() as test:
        await test.topic("t", retention_ms="9")
        assert await alter(test, TOPIC, "t", ("segment.ms", SET, "5")) is ErrorCode.NONE
        assert await value_of(test, "segment.ms") == "5"
        assert await value_of(test, "retention.ms") == "9"
        assert await alter(test, TOPIC, "t", ("segment.ms", DELETE, None)) is ErrorCode.NONE
        assert await value_of(test, "segment.ms") == "604800000"


async def test_append_and_subtract_change_lists() -> None:
    async with under_test() as test:
        await test.topic("t")
        for operation, item, value in [
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "compact", ""),
        ]:
            changed = await alter(test, TOPIC, "t", ("cleanup.policy", operation, item))
            assert changed is ErrorCode.NONE
            assert await value_of(test, "cleanup.policy") == value


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("t", ("segment.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("t", ("nope", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("t", ("nope", SET, "1"), ErrorCode.INVALID_CONFIG),
        ("t", ("nope", DELETE, None), ErrorCode.NONE),
        ("t", ("segment.ms", SET, None), ErrorCode.INVALID_REQUEST),
        ("t", ("segment.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        ("t", ("segment.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        ("t", ("cleanup.policy", APPEND, "vacuum"), ErrorCode.INVALID_CONFIG),
        ("missing", ("segment.ms", SET, "5"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", ("segment.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("bad name", ("segment.ms", SET, "5"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_bad_changes_of_a_topic_get_kafkas_error(
    name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    async with under_test() as test:
        topic = await test.topic("t", retention_ms="9")
        assert await alter(test, TOPIC, name, change) is code
        assert topic.config.overrides == {"retention.ms": "9"}


async def test_all_changes_of_a_resource_are_made_or_none() -> None:
    async with under_test() as test:
        topic = await test.topic("t")
        good, bad = ("segment.ms", SET, "5"), ("retention.ms", SET, "x")
        assert await alter(test, TOPIC, "t", good, bad) is ErrorCode.INVALID_CONFIG
        assert topic.config.overrides == {}
        assert await alter(test, TOPIC, "t", good, good) is ErrorCode.INVALID_REQUEST


async def test_a_resource_that_is_named_twice_is_refused_both_times() -> None:
    async with under_test() as test:
        await test.topic("t")
        configs = [IncrementalAlterableConfig("segment.ms", SET, "5")]
        resource = IncrementalAlterConfigsResource(TOPIC, "t", configs)
        response = await test.ask(IncrementalAlterConfigsRequest([resource, resource]), 1)
        assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 2


async def test_one_bad_resource_does_not_fail_the_others() -> None:
    async with under_test() as test:
        await test.topic("t")
        configs = [IncrementalAlterableConfig("segment.ms", SET, "5")]
        names = ["missing", "t"]
        request = IncrementalAlterConfigsRequest(
            [IncrementalAlterConfigsResource(TOPIC, name, configs) for name in names]
        )
        response = await test.ask(request, 1)
        assert [each.error_code == 0 for each in response.responses] == [False, True]


@pytest.mark.parametrize("type", [LOGGER, 99])
async def test_other_resources_cannot_be_changed(type: int) -> None:
    async with under_test() as test:
        assert await alter(test, type, "x", ("a", SET, "b")) is ErrorCode.INVALID_REQUEST


async def test_validate_only_changes_nothing() -> None:
    async with under_test() as test:
        topic = await test.topic("t")
        change = ("segment.ms", SET, "5")
        assert await alter(test, TOPIC, "t", change, validate_only=True) is ErrorCode.NONE
        assert topic.config.overrides == {}
        change = ("max.connections", SET, "5")
        assert await alter(test, BROKER, "1", change, validate_only=True) is ErrorCode.NONE
        assert test.broker.config.dynamic == {}


async def test_changes_hold_for_the_logs_at_once() -> None:
    async with under_test() as test:
        topic = await test.topic("t", partitions=2)
        await alter(
            test, TOPIC, "t", ("max.message.bytes", SET, "77"), ("cleanup.policy", SET, "compact")
        )
        assert [p.log.config.max_message_bytes for p in topic.partitions] == [77, 77]
        assert topic.config.rules.requires_keys


async def test_changes_at_the_same_time_do_not_undo_each_other() -> None:
    async with under_test() as test:
        topic = await test.topic("t")
        names = ["segment.ms", "retention.ms", "flush.ms", "max.message.bytes"]
        await asyncio.gather(*(alter(test, TOPIC, "t", (name, SET, "7")) for name in names))
        assert set(topic.config.overrides) == set(names)


async def test_changes_survive_a_restart() -> None:
    metadata = MemoryMetadataStore()
    async with under_test(metadata=metadata) as test:
        await test.topic("t")
        await alter(test, TOPIC, "t", ("segment.ms", SET, "5"))
        await alter(test, BROKER, "", ("max.connections", SET, "20"))
        await alter(test, BROKER, "1", ("log.segment.bytes", SET, "2000000"))
        files = test.files
    async with under_test(metadata=metadata, files=files) as test:
        assert await value_of(test, "segment.ms") == "5"
        assert await value_of(test, "segment.bytes") == "2000000"
        assert test.broker.config.max_connections == 20


async def test_a_brokers_dynamic_setting_holds_for_topics_that_inherit_it() -> None:
    async with under_test() as test:
        topic = await test.topic("t")
        own = await test.topic("own", segment_bytes="3000000")
        assert await alter(test, BROKER, "1", ("log.segment.bytes", SET, "2000000")) == 0
        assert topic.partitions[0].log.config.segment_bytes == 2_000_000
        assert own.partitions[0].log.config.segment_bytes == 3_000_000
        config = await describe_one(test, TOPIC, "t", "segment.bytes", include_synonyms=True)
        assert [synonym.source for synonym in config.synonyms] == [2, 5]
        assert await alter(test, BROKER, "1", ("log.segment.bytes", DELETE, None)) == 0
        assert topic.partitions[0].log.config.segment_bytes == 1 << 30


async def test_settings_of_all_brokers_are_told_under_the_empty_name() -> None:
    async with under_test() as test:
        assert (await describe(test, BROKER, "")).configs == []
        await alter(test, BROKER, "", ("max.connections", SET, "20"))
        (config,) = (await describe(test, BROKER, "")).configs
        assert (config.name, config.value, config.config_source) == ("max.connections", "20", 3)


RELOGIN = "sasl.kerberos.min.time.before.relogin"


async def test_what_has_no_effect_can_change_where_kafkas_can_and_is_kept_and_told() -> None:
    metadata = MemoryMetadataStore()
    async with under_test(metadata=metadata) as test:
        assert not (await describe_one(test, BROKER, "1", RELOGIN)).read_only
        assert await alter(test, BROKER, "1", (RELOGIN, SET, "58000")) is ErrorCode.NONE
        assert await alter(test, BROKER, "", ("num.io.threads", SET, "9")) is ErrorCode.NONE
        files = test.files
    async with under_test(metadata=metadata, files=files, num_io_threads="8") as test:
        relogin = await describe_one(test, BROKER, "1", RELOGIN, include_synonyms=True)
        assert (relogin.value, relogin.config_source) == ("58000", 2)
        assert [(each.value, each.source) for each in relogin.synonyms] == [
            ("58000", 2),
            ("60000", 5),
        ]
        threads = await describe_one(test, BROKER, "1", "num.io.threads", include_synonyms=True)
        assert [each.source for each in threads.synonyms] == [3, 4, 5]
        (config,) = (await describe(test, BROKER, "")).configs
        assert (config.name, config.value) == ("num.io.threads", "9")
        assert await alter(test, BROKER, "1", (RELOGIN, DELETE, None)) is ErrorCode.NONE
        assert await value_of(test, RELOGIN, BROKER, "1") == "60000"


async def test_the_older_request_takes_it_too() -> None:
    async with under_test() as test:
        configs = [AlterableConfig(RELOGIN, "61000")]
        request = AlterConfigsRequest([AlterConfigsResource(BROKER, "1", configs)])
        (outcome,) = (await test.ask(request, 2)).responses
        assert outcome.error_code == ErrorCode.NONE
        assert await value_of(test, RELOGIN, BROKER, "1") == "61000"


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("1", ("node.id", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("", (RELOGIN, SET, "5"), ErrorCode.INVALID_REQUEST),
        ("1", (RELOGIN, SET, "soon"), ErrorCode.INVALID_REQUEST),
        ("1", ("num.io.threads", SET, "0"), ErrorCode.INVALID_REQUEST),
        ("1", ("ssl.keystore.location", SET, "/k.pem"), ErrorCode.INVALID_REQUEST),
        ("1", ("ssl.keystore.key", SET, "k"), ErrorCode.INVALID_REQUEST),
        ("1", ("sasl.jaas.config", SET, "k"), ErrorCode.INVALID_REQUEST),
        ("1", ("listeners", SET, "PLAINTEXT://:9092"), ErrorCode.INVALID_REQUEST),
        ("1", ("num.recovery.threads.per.data.dir", SET, "4"), ErrorCode.INVALID_REQUEST),
        ("1", ("nope", SET, "5"), ErrorCode.INVALID_CONFIG),
        ("1", ("max.connections", SET, "x"), ErrorCode.INVALID_REQUEST),
        ("1", ("max.connections.per.ip.overrides", SET, "x"), ErrorCode.INVALID_REQUEST),
        ("2", ("max.connections", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("x", ("max.connections", SET, "5"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_bad_changes_of_a_broker_get_an_error(
    name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    async with under_test() as test:
        assert await alter(test, BROKER, name, change) is code
        assert test.broker.config.dynamic == {}
        assert test.broker.config.dynamic_default == {}
