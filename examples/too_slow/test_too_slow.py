"""A consumer that works for longer than it may is thrown out, and cannot commit what it did."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import CommitFailedError
from resizer import GROUP, PICTURES, serve

from asyncbroker.testing import BrokerThread, assert_committed


@pytest.mark.asyncio
async def test_a_picture_that_takes_too_long_is_another_ones(kafka_broker: BrokerThread) -> None:
    kafka_broker.topic(PICTURES).append("huge.png")
    servers, resized = kafka_broker.bootstrap_servers, asyncio.Event()
    done: list[str] = []

    async def slowly(name: str) -> None:
        await resized.wait()

    async def quickly(name: str) -> None:
        done.append(name)

    slow = asyncio.create_task(serve(servers, slowly, max_poll_interval_ms=300))
    await kafka_broker.wait_for_async(group=GROUP, members=1)
    await kafka_broker.wait_for_async(group=GROUP, members=0)

    quick = asyncio.create_task(serve(servers, quickly))
    await kafka_broker.wait_for_async(until=lambda: bool(kafka_broker.group(GROUP).offsets))
    resized.set()
    with pytest.raises(CommitFailedError):
        await slow
    assert done == ["huge.png"]
    assert_committed(kafka_broker.group(GROUP), {(PICTURES, 0): 1})
    quick.cancel()
    await asyncio.wait([quick])
