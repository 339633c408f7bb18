"""ListConfigResources: what settings can be asked of; as Apache Kafka 4.3, but for loggers."""

from __future__ import annotations

import pytest

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from asyncbroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
from asyncbroker.tests.data_path_harness import under_test

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

ALL = [("flights", TOPIC), ("1", BROKER), ("g", GROUP)]


@pytest.mark.parametrize(
    ("types", "listed"),
    [
        ([], ALL),
        ([TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP], ALL),
        ([GROUP], [("g", GROUP)]),
        ([CLIENT_METRICS], []),
        ([LOGGER], []),
        ([GROUP, TOPIC, GROUP], [("g", GROUP), ("flights", TOPIC)]),
    ],
)
async def test_resources_of_the_types_asked_for_are_listed(
    types: list[int], listed: list[tuple[str, int]]
) -> None:
    async with under_test() as test:
        await test.topic()
        await test.broker.group_settings.set("g", {"consumer.session.timeout.ms": "50000"})
        response = await test.ask(ListConfigResourcesRequest(types), 1)
        found = [(each.resource_name, each.resource_type) for each in response.config_resources]
        assert (response.error_code, found) == (0, listed)


async def test_what_is_listed_can_be_described() -> None:
    async with under_test() as test:
        await test.topic()
        await test.broker.group_settings.set("g", {"consumer.session.timeout.ms": "50000"})
        listed = (await test.ask(ListConfigResourcesRequest(), 1)).config_resources
        resources = [
            DescribeConfigsResource(each.resource_type, each.resource_name, None) for each in listed
        ]
        results = (await test.ask(DescribeConfigsRequest(resources), 4)).results
        assert [each.error_code for each in results] == [0] * len(ALL)


async def test_the_first_version_lists_client_metrics_of_which_there_are_none() -> None:
    async with under_test() as test:
        await test.topic()
        response = await test.ask(ListConfigResourcesRequest(), 0)
        assert (response.error_code, response.config_resources) == (0, [])


async def test_an_unknown_type_is_an_unsupported_version() -> None:
    async with under_test() as test:
        response = await test.ask(ListConfigResourcesRequest([GROUP, 1]), 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert response.config_resources == []
