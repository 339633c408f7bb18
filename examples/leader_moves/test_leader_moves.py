"""Three nodes: the leader moves, and then is away with nobody in its place."""

from __future__ import annotations

import asyncio

import pytest
from publisher import PRICES, publish, publisher

from asyncbroker.testing import BrokerThread, assert_records

pytestmark = [pytest.mark.kafka(nodes=3), pytest.mark.asyncio]


async def test_the_client_follows_a_leader_that_moves(kafka_broker: BrokerThread) -> None:
    kafka_broker.topic(PRICES).create()
    async with publisher(kafka_broker.bootstrap_servers) as producer:
        await publish(producer, b"100")
        kafka_broker.move_leader(PRICES, 0, to=3)
        assert await publish(producer, b"101") == 1
    assert kafka_broker.requests.of("Produce")[-1].node == 3
    assert_records(kafka_broker.topic(PRICES), ["100", "101"])


async def test_the_service_outlasts_a_partition_without_a_leader(
    kafka_broker: BrokerThread,
) -> None:
    kafka_broker.topic(PRICES).create()
    async with publisher(kafka_broker.bootstrap_servers) as producer:
        await publish(producer, b"100")
        kafka_broker.take_down(1, leaders="missing")
        publishing = asyncio.create_task(publish(producer, b"101"))
        await asyncio.wait([publishing], timeout=1)
        assert not publishing.done()
        kafka_broker.bring_up(1)
        assert await publishing > 1
    assert_records(kafka_broker.topic(PRICES), ["100", "101"])
