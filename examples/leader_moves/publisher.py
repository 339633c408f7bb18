"""Publishes prices, and keeps trying with growing pauses while their partition has no leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

PRICES = "prices"
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 5.0


@asynccontextmanager
async def publisher(servers: str) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that notices a lost leader soon."""
    async with AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", request_timeout_ms=500, retry_backoff_ms=20
    ) as producer:
        yield producer


async def publish(producer: AIOKafkaProducer, price: bytes, *, tries: int = 10) -> int:
    """Sends one price; returns how many tries it took. Raises KafkaError after the last one."""
    pause = PAUSE_SECONDS
    for count in range(1, tries):
        try:
            await producer.send_and_wait(PRICES, price)
        except KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        else:
            return count
    await producer.send_and_wait(PRICES, price)
    return tries
