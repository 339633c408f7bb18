"""AlterConfigs, which replaces all settings of a resource, as Apache Kafka 4.3 answers it."""

from __future__ import annotations

import pytest

from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from asyncbroker.tests.data_path_harness import UnderTest, errors_of, under_test

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32


def resource(type: int, name: str, *settings: tuple[str, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(type, name, [AlterableConfig(*setting) for setting in settings])


async def replace(
    test: UnderTest,
    *resources: AlterConfigsResource,
    validate_only: bool = False,
    version: int = 2,
) -> list[ErrorCode]:
    request = AlterConfigsRequest(list(resources), validate_only)
    response: AlterConfigsResponse = await test.ask(request, version)
    for asked, outcome in zip(resources, response.responses, strict=True):
        assert (outcome.resource_type, outcome.resource_name) == (
            asked.resource_type,
            asked.resource_name,
        )
        assert (outcome.error_code == 0) == (outcome.error_message is None)
    return errors_of(response.responses)


@pytest.mark.parametrize("version", range(3))
async def test_what_is_not_named_goes_back_to_what_is_inherited(version: int) -> None:
    metadata = MemoryMetadataStore()
    async with under_test(metadata=metadata) as test:
        topic = await test.topic("t", segment_ms="5", retention_ms="6")
        settings = resource(TOPIC, "t", ("segment.ms", " 7 "), ("cleanup.policy", "compact"))
        assert await replace(test, settings, version=version) == [ErrorCode.NONE]
        assert topic.config.overrides == {"segment.ms": "7", "cleanup.policy": "compact"}
        assert topic.partitions[0].log.config.segment_ms == 7
        assert await replace(test, resource(TOPIC, "t"), version=version) == [ErrorCode.NONE]
        assert topic.config.overrides == {}
    (stored,) = metadata.open().topics.values()
    assert stored.configs == {}


async def test_dynamic_settings_of_a_broker_and_of_all_are_replaced() -> None:
    async with under_test() as test:
        mine = resource(BROKER, "1", ("log.retention.ms", "5"))
        everybodys = resource(BROKER, "", ("log.segment.bytes", "2000000"))
        assert await replace(test, mine, everybodys) == [ErrorCode.NONE, ErrorCode.NONE]
        assert test.broker.config.dynamic == {"log.retention.ms": "5"}
        assert test.broker.config.dynamic_default == {"log.segment.bytes": "2000000"}
        assert await replace(test, resource(BROKER, "1")) == [ErrorCode.NONE]
        assert test.broker.config.dynamic == {}
        assert test.broker.config.dynamic_default == {"log.segment.bytes": "2000000"}


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (resource(TOPIC, "missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(TOPIC, "bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(TOPIC, ""), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "t", ("segment.ms", None)), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "t", ("segment.ms", "5"), ("nope", "1")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", ("segment.ms", "much")), ErrorCode.INVALID_CONFIG),
        (
            resource(TOPIC, "t", ("segment.ms", "5"), ("segment.ms", "5")),
            ErrorCode.INVALID_REQUEST,
        ),
        (resource(BROKER, "2"), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "1", ("node.id", "2")), ErrorCode.INVALID_REQUEST),
        (resource(LOGGER, "1"), ErrorCode.INVALID_REQUEST),
        (resource(GROUP, ""), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_bad_settings_change_nothing(bad: AlterConfigsResource, code: ErrorCode) -> None:
    async with under_test() as test:
        topic = await test.topic("t", retention_ms="6")
        other = await test.topic("other")
        good = resource(TOPIC, "other", ("segment.ms", "8"))
        assert await replace(test, bad, good) == [code, ErrorCode.NONE]
        assert topic.config.overrides == {"retention.ms": "6"}
        assert other.config.overrides == {"segment.ms": "8"}
        assert test.broker.config.dynamic == {}


async def test_a_resource_that_is_named_twice_is_refused_both_times() -> None:
    async with under_test() as test:
        topic = await test.topic("t", retention_ms="6")
        twice = [resource(TOPIC, "t"), resource(TOPIC, "t", ("segment.ms", "5"))]
        assert await replace(test, *twice) == [ErrorCode.INVALID_REQUEST] * 2
        assert topic.config.overrides == {"retention.ms": "6"}


async def test_validate_only_changes_nothing() -> None:
    async with under_test() as test:
        topic = await test.topic("t", retention_ms="6")
        asked = [resource(TOPIC, "t", ("segment.ms", "5")), resource(BROKER, "1")]
        assert await replace(test, *asked, validate_only=True) == [ErrorCode.NONE] * 2
        assert topic.config.overrides == {"retention.ms": "6"}
