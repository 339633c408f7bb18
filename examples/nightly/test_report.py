"""A report that is not run for too long: days pass in the broker, and none in the test."""

from __future__ import annotations

import pytest
from report import SALES, SalesLost, total_since_last_time

from asyncbroker.testing import BrokerThread

pytestmark = pytest.mark.asyncio

THREE_DAYS = {"retention.ms": 3 * 86_400_000}


async def test_each_sale_is_counted_once(kafka_broker: BrokerThread) -> None:
    sales = kafka_broker.topic(SALES.topic).create(settings=THREE_DAYS)
    sales.append("10")
    assert await total_since_last_time(kafka_broker.bootstrap_servers) == 10
    kafka_broker.clock.advance(days=1)
    sales.append("5")
    assert await total_since_last_time(kafka_broker.bootstrap_servers) == 5


async def test_sales_that_retention_has_deleted_are_missed(kafka_broker: BrokerThread) -> None:
    sales = kafka_broker.topic(SALES.topic).create(settings=THREE_DAYS)
    sales.append("10")
    assert await total_since_last_time(kafka_broker.bootstrap_servers) == 10
    sales.append("20")
    kafka_broker.clock.advance(days=4)
    sales.append("5")
    with pytest.raises(SalesLost):
        await total_since_last_time(kafka_broker.bootstrap_servers)
