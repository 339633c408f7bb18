"""Resizes pictures named in `pictures`. A picture that takes longer than `max.poll.interval.ms` has
the consumer leave its group: the others get its partitions, and its commit is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer

PICTURES, GROUP = "pictures", "resizer"


async def serve(
    servers: str, resize: Callable[[str], Awaitable[None]], *, max_poll_interval_ms: int = 300_000
) -> None:
    """Runs until it is cancelled. Raises CommitFailedError when it was too slow."""
    consumer = AIOKafkaConsumer(
        PICTURES,
        bootstrap_servers=servers,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
        max_poll_interval_ms=max_poll_interval_ms,
    )
    async with consumer:
        async for record in consumer:
            await resize(record.value.decode())
            await consumer.commit()
