"""Tests of the service with asyncbroker's pytest plugin: a broker for each, faults where needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from order_service import GROUP, INVOICES, ORDERS, REJECTED, serve

from asyncbroker.testing import BrokerThread, ErrorCode, assert_committed, assert_records


@pytest_asyncio.fixture
async def service(kafka_broker: BrokerThread) -> AsyncIterator[asyncio.Task[None]]:
    for topic in (ORDERS, INVOICES, REJECTED):
        kafka_broker.topic(topic).create()
    task = asyncio.create_task(serve(kafka_broker.bootstrap_servers))
    yield task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def order(number: int) -> str:
    return json.dumps({"id": number, "count": 3, "unit_cents": 250})


def invoice(number: int) -> str:
    return json.dumps({"order": number, "cents": 750})


@pytest.mark.asyncio
async def test_an_order_becomes_an_invoice(
    kafka_broker: BrokerThread, service: asyncio.Task[None]
) -> None:
    kafka_broker.topic(ORDERS).append(order(1), key="ann")
    invoices = await kafka_broker.wait_for_async(records=1, topic=INVOICES)
    assert_records(invoices, [("ann", invoice(1))])


@pytest.mark.asyncio
async def test_a_poison_message_is_put_aside_and_the_next_order_served(
    kafka_broker: BrokerThread, service: asyncio.Task[None]
) -> None:
    kafka_broker.topic(ORDERS).append("no order at all")
    kafka_broker.topic(ORDERS).append(order(2))
    assert_records(await kafka_broker.wait_for_async(records=1, topic=INVOICES), [invoice(2)])
    (rejected,) = kafka_broker.topic(REJECTED).records()
    assert rejected.value == b"no order at all"
    assert dict(rejected.headers)["reason"].startswith(b"JSONDecodeError")


@pytest.mark.asyncio
async def test_the_service_gets_over_a_leader_that_moves(
    kafka_broker: BrokerThread, service: asyncio.Task[None]
) -> None:
    moved = kafka_broker.faults.on(api="Produce", topic=INVOICES, times=2).error(
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    kafka_broker.topic(ORDERS).append(order(3))
    assert_records(await kafka_broker.wait_for_async(records=1, topic=INVOICES), [invoice(3)])
    assert moved.fired == 2


@pytest.mark.asyncio
async def test_an_order_is_committed_after_its_invoice_and_not_before(
    kafka_broker: BrokerThread, service: asyncio.Task[None]
) -> None:
    held = kafka_broker.faults.on(api="Produce", topic=INVOICES).delay(300)
    kafka_broker.topic(ORDERS).append(order(4))
    await kafka_broker.wait_for_async(until=lambda: held.fired == 1)
    assert_committed(kafka_broker.group(GROUP), {})
    await kafka_broker.wait_for_async(until=lambda: bool(kafka_broker.group(GROUP).offsets))
    assert_records(kafka_broker.topic(INVOICES), [invoice(4)])
    assert_committed(kafka_broker.group(GROUP), {(ORDERS, 0): 1})


@pytest.mark.asyncio
async def test_the_service_outlives_a_restart_of_the_broker(
    kafka_broker: BrokerThread, service: asyncio.Task[None]
) -> None:
    kafka_broker.topic(ORDERS).append(order(5))
    await kafka_broker.wait_for_async(until=lambda: bool(kafka_broker.group(GROUP).offsets))
    await asyncio.to_thread(kafka_broker.restart)
    kafka_broker.topic(ORDERS).append(order(6))
    invoices = await kafka_broker.wait_for_async(records=2, topic=INVOICES)
    assert_records(invoices, [invoice(5), invoice(6)])
