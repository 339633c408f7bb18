"""ApiVersions and DescribeCluster, as Apache Kafka 4.3 answers them."""

from __future__ import annotations

import pytest

from asyncbroker.context import Address, RequestContext
from asyncbroker.handlers import HANDLERS
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.api_versions import ApiVersionsRequest
from asyncbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from asyncbroker.tests.data_path_harness import under_test


@pytest.mark.parametrize("version", range(5))
async def test_what_is_served_is_told_from_the_one_list(version: int) -> None:
    async with under_test() as test:
        response = await test.ask(ApiVersionsRequest("client", "1.0"), version)
        assert response.error_code == 0
        told = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        assert told == {
            key: (handler.advertised.first, handler.advertised.last)
            for key, handler in HANDLERS.items()
        }
        assert told[0] == (0, 11)
        assert response.finalized_features_epoch == -1
        assert response.supported_features == response.finalized_features == []


def test_the_list_has_what_old_librdkafka_looks_for_by_exact_version() -> None:
    """librdkafka up to 2.11 takes features for missing when one of these is."""
    wanted = {
        0: (3, 7),
        1: (4, 10),
        2: (1,),
        8: (2,),
        9: (1,),
        10: (0,),
        11: (0,),
        12: (0,),
        13: (0,),
        14: (0,),
        18: (0,),
        22: (0,),
    }
    for key, versions in wanted.items():
        assert all(version in HANDLERS[key].advertised for version in versions), key


def test_nothing_of_transactions_is_advertised() -> None:
    """Clients would begin one, and learn only then that it cannot be."""
    assert not {24, 25, 26, 28, 61, 65, 66} & HANDLERS.keys()


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("", "1.0"),
        ("client", ""),
        ("bad name", "1.0"),
        ("client", "1.0!"),
        ("-client", "1.0"),
        ("client.", "1.0"),
        ("client\n", "1.0"),
    ],
)
async def test_clients_with_a_bad_name_or_version_are_refused(name: str, version: str) -> None:
    async with under_test() as test:
        response = await test.ask(ApiVersionsRequest(name, version), 3)
        assert ErrorCode(response.error_code) is ErrorCode.INVALID_REQUEST
        assert response.api_keys == []
        # Earlier versions do not carry a name.
        assert (await test.ask(ApiVersionsRequest(), 2)).error_code == 0


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "librdkafka", "kafka.js-2"])
async def test_names_of_real_clients_are_taken(name: str) -> None:
    async with under_test() as test:
        assert (await test.ask(ApiVersionsRequest(name, "4.3.1"), 3)).error_code == 0


async def test_versions_can_be_asked_for_again_and_again() -> None:
    async with under_test() as test:
        context = RequestContext()
        first = await test.ask(ApiVersionsRequest("a", "1"), 4, context)
        assert await test.ask(ApiVersionsRequest("a", "1"), 4, context) == first


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_this_broker_at_the_address_that_was_used(version: int) -> None:
    async with under_test(node_id="7", broker_rack="r1") as test:
        context = RequestContext(listener=Address("broker.example", 19092))
        request = DescribeClusterRequest(include_fenced_brokers=version >= 2)
        response = await test.ask(request, version, context)
        assert response.error_code == 0
        assert response.cluster_id == test.broker.cluster_id
        assert response.controller_id == 7
        (broker,) = response.brokers
        assert (broker.broker_id, broker.host, broker.port, broker.rack) == (
            7,
            "broker.example",
            19092,
            "r1",
        )
        assert not broker.is_fenced


async def test_the_clusters_operations_are_told_when_asked_for() -> None:
    async with under_test() as test:
        silent = await test.ask(DescribeClusterRequest(), 0)
        assert silent.cluster_authorized_operations == -2147483648
        told = await test.ask(DescribeClusterRequest(True), 0)
        assert told.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_controllers_are_not_found_at_a_brokers_listener(
    endpoint_type: int, code: ErrorCode
) -> None:
    async with under_test() as test:
        response = await test.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
        assert ErrorCode(response.error_code) is code
        assert response.error_message
        assert response.brokers == []
